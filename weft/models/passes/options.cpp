#include "weft/models/passes/options.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace weft::models {
namespace {

constexpr std::array<std::pair<Option, std::string_view>, 14> kOptionNames = {{
    {Option::kWindows, "sliding windows"},
    {Option::kQkvBias, "biases of queries, keys and values"},
    {Option::kOutputBias, "biases of attention's output"},
    {Option::kMlpBias, "biases of feed-forward layers"},
    {Option::kNormsOfEachHead, "norms of each head"},
    {Option::kNormsOfAllHeads, "norms over all heads"},
    {Option::kNormsAfter, "norms after layers"},
    {Option::kPartialRope, "rope of a part of each head"},
    {Option::kLayersWithoutRope, "layers without rope"},
    {Option::kEmbeddingScale, "a factor of the embedding"},
    {Option::kAttentionScale, "a factor of attention's scores"},
    {Option::kResidualScale, "a factor of what layers add"},
    {Option::kLogitsScale, "a factor of the logits"},
    {Option::kExperts, "experts"},
}};

}  // namespace

// Sizes are read by all passes from the weights, and what only rope's angles, embedding or head
// depend on is computed outside of passes; the fields of experts say which ones, not whether.
OptionSet options_in_use(const ModelConfig& config) {
  const auto& [family, vocab_size, width, num_layers, num_heads, num_kv_heads, head_dim, ffn_width,
               max_positions, norm_eps, rope_base, rope_scaling, windows, is_tied, has_qkv_bias,
               has_output_bias, has_mlp_bias, head_norms, norm_placement, rope_dims,
               layers_without_rope, embedding_scale, attention_scale, residual_scale, logits_scale,
               experts] = config;
  const auto& [num_experts, experts_per_token, expert_ffn_width, shared_ffn_width,
               normalizes_weights, layer_step, plain_layers] = experts;
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
  add_if(rope_dims != 0 && rope_dims != head_dim, Option::kPartialRope);
  add_if(!layers_without_rope.empty(), Option::kLayersWithoutRope);
  add_if(embedding_scale != 1, Option::kEmbeddingScale);
  add_if(attention_scale != 0, Option::kAttentionScale);
  add_if(residual_scale != 1, Option::kResidualScale);
  add_if(logits_scale != 1, Option::kLogitsScale);
  add_if(num_experts > 0, Option::kExperts);
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
