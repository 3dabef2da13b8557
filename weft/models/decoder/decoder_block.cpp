#include "weft/models/decoder/decoder_block.h"

#include "weft/models/decoder/layer_parts.h"

namespace weft::models {

DecoderBlockImpl::DecoderBlockImpl(const ModelConfig& config, const WeightSource& source,
                                   int64_t layer, const dist::Group& group)
    : layer_(layer),
      norms_after_(config.norm_placement == NormPlacement::kAfter),
      residual_scale_(config.residual_scale),
      attention_norm_(register_module(module_name(config, {Part::kInputNorm, layer}),
                                      norm(config, source, {Part::kInputNorm, layer}))),
      attention_(register_module(outer_module_name(config, {Part::kQuery, layer}),
                                 AttentionLayer(config, source, layer, group))),
      ffn_norm_(register_module(module_name(config, {Part::kFfnNorm, layer}),
                                norm(config, source, {Part::kFfnNorm, layer}))) {
  if (config.has_experts(layer)) {
    experts_ = register_module(outer_module_name(config, {Part::kRouter, layer}),
                               make_experts(config, source, layer, group));
  } else {
    mlp_ = register_module(outer_module_name(config, {Part::kGate, layer}),
                           FeedForwardLayer(config, source, layer, group));
  }
}

// What a layer reads of the residual stream.
at::Tensor DecoderBlockImpl::taken(const at::Tensor& x_BTD, nn::RMSNorm& norm) const {
  return norms_after_ ? x_BTD : norm->forward(x_BTD);
}

// What the residual stream gets of a layer's output. Dropout number 0 is the embedding's.
at::Tensor DecoderBlockImpl::added(const at::Tensor& y_BTD, nn::RMSNorm& norm,
                                   const PassContext& pass, uint64_t half) const {
  at::Tensor own_BTD = norms_after_ ? norm->forward(y_BTD) : y_BTD;
  if (residual_scale_ != 1) own_BTD = own_BTD * residual_scale_;
  nn::DropoutDraw draw = pass.dropout;
  draw.layer = 2 * static_cast<uint64_t>(layer_) + half;
  return nn::dropped(own_BTD, draw, pass.stream_place);
}

at::Tensor DecoderBlockImpl::forward(const at::Tensor& x_BTD, const PassContext& pass) {
  // Also where backward computes the block again.
  const nn::PlaceScope scope(pass.place);
  const at::Tensor attended_BTD = attention_->forward(taken(x_BTD, attention_norm_), pass);
  const at::Tensor h_BTD = x_BTD + added(attended_BTD, attention_norm_, pass, 1);
  const at::Tensor taken_BTD = taken(h_BTD, ffn_norm_);
  const at::Tensor y_BTD =
      mlp_.is_empty() ? experts_->forward(taken_BTD) : mlp_->forward(taken_BTD, pass.rows);
  return h_BTD + added(y_BTD, ffn_norm_, pass, 2);
}

}  // namespace weft::models
