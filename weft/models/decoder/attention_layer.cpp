#include "weft/models/decoder/attention_layer.h"

#include "weft/models/decoder/layer_parts.h"
#include "weft/nn/attention/attention.h"
#include "weft/nn/attention/rotary_attention.h"
#include "weft/nn/linear/fused_linear.h"

// Shape letters: B batch, T tokens, S positions, D width, H head dim; n, k: this rank's heads and
// kv heads.

namespace weft::models {

namespace {

AttentionParts make_parts(const ModelConfig& config, const WeightSource& source, int64_t layer,
                          const dist::Group& group) {
  const auto to_heads = [&](Part part) {
    return all_to_sharded(source, model_name(config, {part, layer}), group);
  };
  const auto norm = [&](Part part) {
    if (config.head_norms == HeadNorms::kNone) return nn::HeadRMSNorm(nullptr);
    return nn::HeadRMSNorm(source.vector(model_name(config, {part, layer}) + ".weight"),
                           config.norm_eps, group);
  };
  return {to_heads(Part::kQuery),
          to_heads(Part::kKey),
          to_heads(Part::kValue),
          sharded_to_all(source, model_name(config, {Part::kOutput, layer}), group),
          norm(Part::kQueryNorm),
          norm(Part::kKeyNorm),
          {held_heads(config, source).kv_of_head, config.window(layer), config.attention_scale}};
}

}  // namespace

AttentionLayerImpl::AttentionLayerImpl(const ModelConfig& config, const WeightSource& source,
                                       int64_t layer, const dist::Group& group)
    : layer_(layer), head_dim_(config.head_dim), parts_(make_parts(config, source, layer, group)) {
  register_module("q_proj", parts_.q_proj);
  register_module("k_proj", parts_.k_proj);
  register_module("v_proj", parts_.v_proj);
  register_module("o_proj", parts_.o_proj);
  if (parts_.q_norm.is_empty()) return;
  register_module("q_norm", parts_.q_norm);
  register_module("k_norm", parts_.k_norm);
}

at::Tensor AttentionLayerImpl::heads(const at::Tensor& x, const PassContext& pass) const {
  const int64_t tokens = x.numel() / x.size(-1) / pass.num_sequences;
  return x.view({pass.num_sequences, tokens, x.size(-1) / head_dim_, head_dim_});
}

at::Tensor AttentionLayerImpl::forward(const at::Tensor& x_BTD, const PassContext& pass) {
  const auto projected = nn::linears_of_shared(
      {parts_.q_proj->inner(), parts_.k_proj->inner(), parts_.v_proj->inner()}, x_BTD,
      parts_.q_proj->group(), pass.rows);
  at::Tensor q_BTnH = heads(projected[0], pass), k_BTkH = heads(projected[1], pass);
  const at::Tensor v_BTkH = heads(projected[2], pass);
  if (!parts_.q_norm.is_empty()) {
    q_BTnH = parts_.q_norm->forward(q_BTnH);
    k_BTkH = parts_.k_norm->forward(k_BTkH);
  }
  if (pass.cache == nullptr) {
    const at::Tensor out_BTn =
        nn::rotary_attention(q_BTnH, k_BTkH, v_BTkH, pass.angles, parts_.spec, pass.documents_BT);
    return parts_.o_proj->forward_rows(pass.rows.empty() ? out_BTn : out_BTn.flatten(0, 1),
                                       pass.rows);
  }
  const auto [k_BkSH, v_BkSH] =
      pass.cache->append(layer_, pass.angles.apply(k_BTkH).transpose(1, 2), v_BTkH.transpose(1, 2));
  const at::Tensor q_BnTH = pass.angles.apply(q_BTnH).transpose(1, 2);
  return parts_.o_proj->forward(nn::grouped_query_attention(
      q_BnTH, k_BkSH.to(q_BnTH.scalar_type()), v_BkSH.to(q_BnTH.scalar_type()), parts_.spec));
}

}  // namespace weft::models
