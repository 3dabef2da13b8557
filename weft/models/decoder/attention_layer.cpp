#include "weft/models/decoder/attention_layer.h"

#include "weft/models/decoder/layer_parts.h"
#include "weft/nn/attention.h"
#include "weft/nn/fused_linear.h"
#include "weft/nn/rotary_attention.h"
#include "weft/shard/heads.h"

// Shape letters: B batch, T tokens, S positions, D width, H head dim; n, k: this rank's heads and
// kv heads.

namespace weft::models {

AttentionLayerImpl::AttentionLayerImpl(const ModelConfig& config, const WeightSource& source,
                                       int64_t layer, const dist::Group& group)
    : layer_(layer),
      head_dim_(config.head_dim),
      window_(config.window(layer)),
      kv_of_head_(
          shard::shard_heads(config.num_heads, config.num_kv_heads, group.size(), group.rank())
              .kv_of_head),
      q_proj_(register_module(
          "q_proj", all_to_sharded(source, model_name(config, {Part::kQuery, layer}), group))),
      k_proj_(register_module(
          "k_proj", all_to_sharded(source, model_name(config, {Part::kKey, layer}), group))),
      v_proj_(register_module(
          "v_proj", all_to_sharded(source, model_name(config, {Part::kValue, layer}), group))),
      o_proj_(register_module(
          "o_proj", sharded_to_all(source, model_name(config, {Part::kOutput, layer}), group))) {
  if (!config.has_head_norms) return;
  const auto norm = [&](Part part) {
    return nn::HeadRMSNorm(source.vector(model_name(config, {part, layer}) + ".weight"),
                           config.norm_eps, group);
  };
  q_norm_ = register_module("q_norm", norm(Part::kQueryNorm));
  k_norm_ = register_module("k_norm", norm(Part::kKeyNorm));
}

at::Tensor AttentionLayerImpl::heads(const at::Tensor& x, const PassContext& pass) const {
  const int64_t tokens = x.numel() / x.size(-1) / pass.num_sequences;
  return x.view({pass.num_sequences, tokens, x.size(-1) / head_dim_, head_dim_});
}

at::Tensor AttentionLayerImpl::forward(const at::Tensor& x_BTD, const PassContext& pass) {
  const auto projected = nn::linears_of_shared(
      {q_proj_->inner(), k_proj_->inner(), v_proj_->inner()}, x_BTD, q_proj_->group(), pass.rows);
  at::Tensor q_BTnH = heads(projected[0], pass), k_BTkH = heads(projected[1], pass);
  const at::Tensor v_BTkH = heads(projected[2], pass);
  if (!q_norm_.is_empty()) {
    q_BTnH = q_norm_->forward(q_BTnH);
    k_BTkH = k_norm_->forward(k_BTkH);
  }
  if (pass.cache == nullptr) {
    const at::Tensor out_BTn = nn::rotary_attention(q_BTnH, k_BTkH, v_BTkH, pass.angles,
                                                    {kv_of_head_, window_, pass.documents_BT});
    return o_proj_->forward_rows(pass.rows.empty() ? out_BTn : out_BTn.flatten(0, 1), pass.rows);
  }
  const auto [k_BkSH, v_BkSH] =
      pass.cache->append(layer_, pass.angles.apply(k_BTkH).transpose(1, 2), v_BTkH.transpose(1, 2));
  return o_proj_->forward(nn::grouped_query_attention(pass.angles.apply(q_BTnH).transpose(1, 2),
                                                      k_BkSH, v_BkSH, kv_of_head_, window_));
}

}  // namespace weft::models
