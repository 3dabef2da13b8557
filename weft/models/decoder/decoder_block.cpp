#include "weft/models/decoder/decoder_block.h"

#include "weft/models/decoder/layer_parts.h"

namespace weft::models {

DecoderBlockImpl::DecoderBlockImpl(const ModelConfig& config, const WeightSource& source,
                                   int64_t layer, const dist::Group& group)
    : layer_(layer),
      input_norm_(
          register_module("input_layernorm", norm(config, source, {Part::kInputNorm, layer}))),
      attention_(register_module("self_attn", AttentionLayer(config, source, layer, group))),
      ffn_norm_(register_module("post_attention_layernorm",
                                norm(config, source, {Part::kFfnNorm, layer}))) {
  if (config.has_experts(layer)) {
    experts_ = register_module(config.family == "mixtral" ? "block_sparse_moe" : "mlp",
                               make_experts(config, source, layer, group));
  } else {
    mlp_ = register_module("mlp", FeedForwardLayer(config, source, layer, group));
  }
}

// Number 0 is the embedding's.
at::Tensor DecoderBlockImpl::dropped(const at::Tensor& x_BTD, const PassContext& pass,
                                     uint64_t half) const {
  nn::DropoutDraw draw = pass.dropout;
  draw.layer = 2 * static_cast<uint64_t>(layer_) + half;
  return nn::dropped(x_BTD, draw, pass.stream_place);
}

at::Tensor DecoderBlockImpl::forward(const at::Tensor& x_BTD, const PassContext& pass) {
  // Also where backward computes the block again.
  const nn::PlaceScope scope(pass.place);
  const at::Tensor h_BTD =
      x_BTD + dropped(attention_->forward(input_norm_->forward(x_BTD), pass), pass, 1);
  const at::Tensor normed_BTD = ffn_norm_->forward(h_BTD);
  return h_BTD + dropped(mlp_.is_empty() ? experts_->forward(normed_BTD)
                                         : mlp_->forward(normed_BTD, pass.rows),
                         pass, 2);
}

}  // namespace weft::models
