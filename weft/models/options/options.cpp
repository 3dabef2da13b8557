#include "weft/models/options/options.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace weft::models {
namespace {

constexpr std::array<std::pair<Option, std::string_view>, 37> kOptionNames = {{
    {Option::kWindows, "sliding windows"},
    {Option::kQkvBias, "biases of queries, keys and values"},
    {Option::kOutputBias, "biases of attention's output"},
    {Option::kMlpBias, "biases of feed-forward layers"},
    {Option::kNormsOfEachHead, "norms of each head"},
    {Option::kNormsOfAllHeads, "norms over all heads"},
    {Option::kNormsAfter, "norms after layers"},
    {Option::kNormsBeforeAndAfter, "norms before and after layers"},
    {Option::kPartialRope, "rope of a part of each head"},
    {Option::kLayersWithoutRope, "layers without rope"},
    {Option::kEmbeddingScale, "a factor of the embedding"},
    {Option::kAttentionScale, "a factor of attention's scores"},
    {Option::kResidualScale, "a factor of what layers add"},
    {Option::kLogitsScale, "a factor of the logits"},
    {Option::kExperts, "experts"},
    {Option::kGelu, "gelu in feed-forward layers"},
    {Option::kClampedGate, "clamped gates in feed-forward layers"},
    {Option::kScoreCap, "a cap of attention's scores"},
    {Option::kLogitsCap, "a cap of the logits"},
    {Option::kRopeOfWindows, "a rope of layers with windows"},
    {Option::kQueryGrowth, "queries that grow with their position"},
    {Option::kSinks, "attention sinks"},
    {Option::kRouterBias, "biases of routers"},
    {Option::kExpertBias, "biases of experts"},
    {Option::kTurnsNeighbours, "rope of neighbours"},
    {Option::kSigmoidRouting, "routing by sigmoids or groups"},
    {Option::kUngatedSharedExpert, "a shared expert without gate"},
    {Option::kShortConvolutions, "short convolutions"},
    {Option::kLatentAttention, "latent attention"},
    {Option::kGatedDeltaNets, "gated delta nets"},
    {Option::kGatedAttention, "gates of attention's output"},
    {Option::kHeadsByLayer, "other heads in layers without a window"},
    {Option::kNormsOfValues, "norms of values"},
    {Option::kLayerFactors, "factors of layers"},
    {Option::kFfnBesideExperts, "experts beside a feed-forward layer"},
    {Option::kLayerInputs, "inputs of each layer"},
    {Option::kReusedKeys, "keys and values of other layers"},
}};

// Of fields of experts some say which ones, not whether.
void add_experts(const ExpertsConfig& experts, OptionSet& used) {
  const auto& [num_experts, experts_per_token, expert_ffn_width, shared_ffn_width,
               normalizes_weights, layer_step, plain_layers, scores, has_router_bias,
               has_expert_bias, has_choice_bias, num_groups, groups_per_token, best_of_group,
               weights_scale, gates_shared, is_beside_ffn] = experts;
  const auto add_if = [&used](bool is_used, Option option) {
    if (is_used) used.add(option);
  };
  used.add(Option::kExperts);
  add_if(has_router_bias, Option::kRouterBias);
  add_if(has_expert_bias, Option::kExpertBias);
  add_if(is_beside_ffn, Option::kFfnBesideExperts);
  const bool is_softmax = scores == RouterScores::kSoftmax && !has_choice_bias;
  add_if(!is_softmax || num_groups > 1 || groups_per_token != 1 || weights_scale != 1,
         Option::kSigmoidRouting);
  add_if(shared_ffn_width > 0 && !gates_shared, Option::kUngatedSharedExpert);
}

}  // namespace

// Sizes are read by all passes from the weights, and what only rope's angles, embedding or head
// depend on is computed outside of passes; norms know their offset (nn::RMSNorm::whole_weight).
OptionSet options_in_use(const ModelConfig& config) {
  const auto& [family, vocab_size, width, num_layers, num_heads, num_kv_heads, head_dim, ffn_width,
               max_positions, norm_eps, norm_offset, gating, rope_base, rope_scaling,
               window_rope_base, turns_neighbours, query_growth, windows, is_tied, has_qkv_bias,
               has_output_bias, has_mlp_bias, head_norms, norm_placement, rope_dims,
               layers_without_rope, embedding_scale, attention_scale, residual_scale, logits_scale,
               score_cap, logits_cap, has_sinks, gates_attention, latent, experts, recurrent,
               full_layers, norms_values, scales_layers, layer_inputs, reusing] = config;
  OptionSet used;
  const auto add_if = [&used](bool is_used, Option option) {
    if (is_used) used.add(option);
  };
  add_if(std::ranges::any_of(windows, [](int64_t window) { return window != 0; }),
         Option::kWindows);
  add_if(has_qkv_bias, Option::kQkvBias);
  add_if(has_output_bias, Option::kOutputBias);
  add_if(has_mlp_bias, Option::kMlpBias);
  add_if(head_norms == HeadNorms::kEachHead, Option::kNormsOfEachHead);
  add_if(head_norms == HeadNorms::kAllHeads, Option::kNormsOfAllHeads);
  add_if(norm_placement == NormPlacement::kAfter, Option::kNormsAfter);
  add_if(norm_placement == NormPlacement::kBoth, Option::kNormsBeforeAndAfter);
  add_if(latent.is_used(), Option::kLatentAttention);
  add_if(rope_dims != 0 && rope_dims != head_dim && !latent.is_used(), Option::kPartialRope);
  add_if(!layers_without_rope.empty(), Option::kLayersWithoutRope);
  add_if(embedding_scale != 1, Option::kEmbeddingScale);
  add_if(attention_scale != 0, Option::kAttentionScale);
  add_if(residual_scale != 1, Option::kResidualScale);
  add_if(logits_scale != 1, Option::kLogitsScale);
  add_if(gating.activation == nn::Activation::kGeluTanh, Option::kGelu);
  add_if(gating.activation == nn::Activation::kClamped, Option::kClampedGate);
  add_if(score_cap != 0, Option::kScoreCap);
  add_if(logits_cap != 0, Option::kLogitsCap);
  add_if(window_rope_base != 0, Option::kRopeOfWindows);
  add_if(query_growth != 0, Option::kQueryGrowth);
  add_if(has_sinks, Option::kSinks);
  add_if(gates_attention, Option::kGatedAttention);
  add_if(turns_neighbours, Option::kTurnsNeighbours);
  add_if(full_layers.is_used(), Option::kHeadsByLayer);
  add_if(norms_values, Option::kNormsOfValues);
  add_if(scales_layers, Option::kLayerFactors);
  add_if(layer_inputs.is_used(), Option::kLayerInputs);
  add_if(reusing.count > 0, Option::kReusedKeys);
  const auto& [recurrent_layers, recurrent_kind, num_taps, delta_heads] = recurrent;
  if (!recurrent_layers.empty()) {
    add_if(recurrent_kind == RecurrentKind::kShortConvolution, Option::kShortConvolutions);
    add_if(recurrent_kind == RecurrentKind::kGatedDelta, Option::kGatedDeltaNets);
  }
  if (experts.num_experts > 0) add_experts(experts, used);
  return used;
}

std::string names_of(OptionSet options) {
  std::string text;
  for (const auto& [option, name] : kOptionNames) {
    if (!options.has(option)) continue;
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

}  // namespace weft::models
