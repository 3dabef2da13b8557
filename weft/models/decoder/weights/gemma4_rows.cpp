#include "weft/models/decoder/weights/gemma4_rows.h"

#include "weft/core/error.h"
#include "weft/models/decoder/weights/weight_shapes.h"

namespace weft::models {
namespace {

bool has_full_heads(const ModelConfig& config, int64_t layer) {
  return config.has_full_heads(layer);
}
bool has_full_keys(const ModelConfig& config, int64_t layer) {
  return config.has_full_heads(layer) && !config.reuses_keys(layer);
}
bool has_full_values(const ModelConfig& config, int64_t layer) {
  return has_full_keys(config, layer) && !config.full_layers.keys_are_values;
}
bool has_full_layers(const ModelConfig& config) { return config.full_layers.is_used(); }
bool has_reusing_layers(const ModelConfig& config) { return config.reusing.count > 0; }
bool scales_layers(const ModelConfig& config) { return config.scales_layers; }
bool has_inputs(const ModelConfig& config) { return config.layer_inputs.is_used(); }
bool is_beside_ffn(const ModelConfig& config) { return config.experts.is_beside_ffn; }

constexpr WeightPresence kFullHeads = {has_full_layers, has_full_heads};
constexpr WeightPresence kFullKeys = {has_full_layers, has_full_keys};
constexpr WeightPresence kFullValues = {has_full_layers, has_full_values};
constexpr WeightPresence kReusing = {has_reusing_layers, has_reusing_ffn};
constexpr WeightPresence kScaled = {scales_layers};
constexpr WeightPresence kInputs = {has_inputs};
constexpr WeightPresence kBesideFfn = {is_beside_ffn, has_experts};

constexpr WeightRow kGemma4Rows[] = {
    {Part::kQuery, "model.layers.*.self_attn.q_proj", "blk.*.attn_q", kToFullHeads, kFullHeads,
     kQkvBias},
    {Part::kKey, "model.layers.*.self_attn.k_proj", "blk.*.attn_k", kToFullKvHeads, kFullKeys,
     kQkvBias},
    {Part::kValue, "model.layers.*.self_attn.v_proj", "blk.*.attn_v", kToFullKvHeads, kFullValues,
     kQkvBias},
    {Part::kQueryNorm, "model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm", kOfFullHead,
     kFullHeads},
    {Part::kKeyNorm, "model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm", kOfFullHead,
     kFullKeys},
    {Part::kOutput, "model.layers.*.self_attn.o_proj", "blk.*.attn_output", kFromFullHeads,
     kFullHeads, kOutputBias},
    {Part::kGate, "model.layers.*.mlp.gate_proj", "blk.*.ffn_gate", kToReusingFfn, kReusing},
    {Part::kUp, "model.layers.*.mlp.up_proj", "blk.*.ffn_up", kToReusingFfn, kReusing},
    {Part::kDown, "model.layers.*.mlp.down_proj", "blk.*.ffn_down", kFromReusingFfn, kReusing},
    {Part::kPlainOutNorm, "model.layers.*.post_feedforward_layernorm_1", "blk.*.post_ffw_norm_1",
     kOfWidth, kBesideFfn},
    {Part::kExpertsNorm, "model.layers.*.pre_feedforward_layernorm_2", "blk.*.pre_ffw_norm_2",
     kOfWidth, kBesideFfn},
    {Part::kExpertsOutNorm, "model.layers.*.post_feedforward_layernorm_2", "blk.*.post_ffw_norm_2",
     kOfWidth, kBesideFfn},
    {Part::kRouterFactors, "model.layers.*.router.scale", "blk.*.ffn_gate_inp", kOfWidth,
     kBesideFfn},
    {Part::kRouter, "model.layers.*.router.proj", "blk.*.ffn_gate_inp", kToExperts, kBesideFfn},
    {Part::kExpertFactors, "model.layers.*.router.per_expert_scale", "blk.*.ffn_down_exps",
     kOfExperts, kBesideFfn},
    {Part::kExpertGate, "model.layers.*.router.experts.#.gate_proj", "blk.*.ffn_gate_exps",
     kToExpertFfn, kBesideFfn, nullptr, false, "model.layers.*.experts.switch_glu.gate_proj",
     "blk.*.ffn_gate.#"},
    {Part::kExpertUp, "model.layers.*.router.experts.#.up_proj", "blk.*.ffn_up_exps", kToExpertFfn,
     kBesideFfn, nullptr, false, "model.layers.*.experts.switch_glu.up_proj", "blk.*.ffn_up.#"},
    {Part::kExpertDown, "model.layers.*.router.experts.#.down_proj", "blk.*.ffn_down_exps",
     kFromExpertFfn, kBesideFfn, nullptr, false, "model.layers.*.experts.switch_glu.down_proj",
     "blk.*.ffn_down.#"},
    {Part::kInputGate, "model.layers.*.per_layer_input_gate", "blk.*.inp_gate", kToInput, kInputs},
    {Part::kInputOut, "model.layers.*.per_layer_projection", "blk.*.proj", kFromInput, kInputs},
    {Part::kInputOutNorm, "model.layers.*.post_per_layer_input_norm", "blk.*.post_norm", kOfWidth,
     kInputs},
    {Part::kLayerFactor, "model.layers.*.layer_scalar", "blk.*.layer_output_scale", kOfOne,
     kScaled},
};

constexpr WeightRow kGemma4ModelRows[] = {
    {Part::kInputEmbedding, "model.embed_tokens_per_layer", "per_layer_token_embd",
     kInputVocabulary, kInputs},
    {Part::kInputProjection, "model.per_layer_model_projection", "per_layer_model_proj", kToInputs,
     kInputs},
    {Part::kInputProjectionNorm, "model.per_layer_projection_norm", "per_layer_proj_norm", kOfInput,
     kInputs},
};

}  // namespace

std::span<const WeightRow> gemma4_rows() { return kGemma4Rows; }
std::span<const WeightRow> gemma4_model_rows() { return kGemma4ModelRows; }

int64_t gemma4_size_of(const ModelConfig& config, WeightDim dim) {
  switch (dim) {
    case WeightDim::kFullHead:
      return config.full_layers.head_dim;
    case WeightDim::kFullHeads:
      return config.num_heads * config.full_layers.head_dim;
    case WeightDim::kFullKvHeads:
      return config.full_layers.num_kv_heads * config.full_layers.head_dim;
    case WeightDim::kReusingFfn:
      return config.reusing.ffn_width;
    case WeightDim::kInputVocabulary:
      return config.layer_inputs.vocab_size;
    case WeightDim::kInput:
      return config.layer_inputs.width;
    case WeightDim::kInputs:
      return config.num_layers * config.layer_inputs.width;
    default:
      core::fail<core::InternalError>("models: an unknown dim of a weight");
  }
}

}  // namespace weft::models
