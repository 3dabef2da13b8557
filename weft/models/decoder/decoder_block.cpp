#include "weft/models/decoder/decoder_block.h"

#include <utility>

#include "weft/models/decoder/layer_parts.h"

namespace weft::models {
namespace {

LayerNorms make_norms(const ModelConfig& config, const WeightSource& source, int64_t layer,
                      Part before, Part after) {
  LayerNorms norms;
  if (has_norms_before(config.norm_placement)) norms.before = norm(config, source, {before, layer});
  if (has_norms_after(config.norm_placement)) norms.after = norm(config, source, {after, layer});
  return norms;
}

// What a layer reads of the residual stream.
at::Tensor taken(const at::Tensor& x_BTD, LayerNorms& norms) {
  return norms.before.is_empty() ? x_BTD : norms.before->forward(x_BTD);
}

}  // namespace

DecoderBlockImpl::DecoderBlockImpl(const ModelConfig& config, const WeightSource& source,
                                   int64_t layer, const dist::Group& group)
    : layer_(layer),
      residual_scale_(config.residual_scale),
      attention_norms_(
          make_norms(config, source, layer, Part::kInputNorm, Part::kAttentionOutNorm)),
      ffn_norms_(make_norms(config, source, layer, Part::kFfnNorm, Part::kFfnOutNorm)) {
  const auto add_norm = [&](Part part, const nn::RMSNorm& norm) {
    if (!norm.is_empty()) register_module(module_name(config, {part, layer}), norm);
  };
  add_norm(Part::kInputNorm, attention_norms_.before);
  auto [name, mixer] = make_token_mixer(config, source, layer, group);
  mixer_ = register_module(std::move(name), std::move(mixer));
  attention_ = AttentionLayer(std::dynamic_pointer_cast<AttentionLayerImpl>(mixer_));
  add_norm(Part::kAttentionOutNorm, attention_norms_.after);
  add_norm(Part::kFfnNorm, ffn_norms_.before);
  if (config.has_experts(layer)) {
    experts_ = register_module(outer_module_name(config, {Part::kRouter, layer}),
                               make_experts(config, source, layer, group));
  } else {
    mlp_ = register_module(outer_module_name(config, {Part::kGate, layer}),
                           FeedForwardLayer(config, source, layer, group));
  }
  add_norm(Part::kFfnOutNorm, ffn_norms_.after);
}

// What the residual stream gets of a layer's output. Dropout number 0 is the embedding's.
at::Tensor DecoderBlockImpl::added(const at::Tensor& y_BTD, LayerNorms& norms,
                                   const PassContext& pass, uint64_t half) const {
  at::Tensor own_BTD = norms.after.is_empty() ? y_BTD : norms.after->forward(y_BTD);
  if (residual_scale_ != 1) own_BTD = own_BTD * residual_scale_;
  nn::DropoutDraw draw = pass.dropout;
  draw.layer = 2 * static_cast<uint64_t>(layer_) + half;
  return nn::dropped(own_BTD, draw, pass.stream_place);
}

at::Tensor DecoderBlockImpl::forward(const at::Tensor& x_BTD, const PassContext& pass) {
  // Also where backward computes the block again.
  const nn::PlaceScope scope(pass.place);
  const at::Tensor mixed_BTD = mixer_->forward(taken(x_BTD, attention_norms_), pass);
  const at::Tensor h_BTD = x_BTD + added(mixed_BTD, attention_norms_, pass, 1);
  const at::Tensor taken_BTD = taken(h_BTD, ffn_norms_);
  const at::Tensor y_BTD =
      mlp_.is_empty() ? experts_->forward(taken_BTD) : mlp_->forward(taken_BTD, pass.rows);
  return h_BTD + added(y_BTD, ffn_norms_, pass, 2);
}

}  // namespace weft::models
