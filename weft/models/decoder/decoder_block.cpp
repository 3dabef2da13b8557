#include "weft/models/decoder/decoder_block.h"

#include <cmath>
#include <utility>

#include "weft/models/decoder/layer_parts.h"
#include "weft/nn/layers/swiglu.h"

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

at::Tensor BesideParts::router_weight() const {
  return router_factors.to(at::kFloat) / std::sqrt(static_cast<double>(router_factors.size(0)));
}

DecoderBlockImpl::DecoderBlockImpl(const ModelConfig& config, const WeightSource& source,
                                   int64_t layer, const dist::Group& group)
    : layer_(layer),
      residual_scale_(config.residual_scale),
      attention_norms_(
          make_norms(config, source, layer, Part::kInputNorm, Part::kAttentionOutNorm)),
      ffn_norms_(make_norms(config, source, layer, Part::kFfnNorm, Part::kFfnOutNorm)),
      norm_eps_(config.norm_eps),
      gating_(config.gating) {
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
  }
  if (config.has_plain_ffn(layer)) {
    mlp_ = register_module(outer_module_name(config, {Part::kGate, layer}),
                           FeedForwardLayer(config, source, layer, group));
  }
  add_norm(Part::kFfnOutNorm, ffn_norms_.after);
  if (config.experts.is_beside_ffn) add_experts_beside(config, source);
  if (config.layer_inputs.is_used()) add_input(config, source);
  if (config.scales_layers) {
    const PartPlace place = {Part::kLayerFactor, layer};
    factor_ = register_buffer(module_name(config, place),
                              source.vector(model_name(config, place) + ".weight"));
  }
}

void DecoderBlockImpl::add_experts_beside(const ModelConfig& config, const WeightSource& source) {
  const auto add = [&](Part part) {
    const PartPlace place = {part, layer_};
    return register_module(module_name(config, place), norm(config, source, place));
  };
  beside_.plain_after = add(Part::kPlainOutNorm);
  beside_.experts_before = add(Part::kExpertsNorm);
  beside_.experts_after = add(Part::kExpertsOutNorm);
  const std::string factors = model_name(config, {Part::kRouterFactors, layer_}) + ".weight";
  beside_.router_factors = register_buffer("router_factors", source.vector(factors));
}

void DecoderBlockImpl::add_input(const ModelConfig& config, const WeightSource& source) {
  const auto linear = [&](Part part) {
    const PartPlace place = {part, layer_};
    return register_module(module_name(config, place),
                           nn::PartialLinear(source.linear(model_name(config, place), true)));
  };
  input_.gate = linear(Part::kInputGate);
  input_.out = linear(Part::kInputOut);
  const PartPlace place = {Part::kInputOutNorm, layer_};
  input_.norm = register_module(module_name(config, place), norm(config, source, place));
}

// What feed-forward layers and experts make of the residual stream.
at::Tensor DecoderBlockImpl::fed(const at::Tensor& h_BTD, const PassContext& pass) {
  const at::Tensor taken_BTD = taken(h_BTD, ffn_norms_);
  if (mlp_.is_empty()) return experts_->forward(taken_BTD);
  const at::Tensor y_BTD = mlp_->forward(taken_BTD, pass.rows);
  if (experts_.is_empty()) return y_BTD;
  const at::Tensor routed_BTD =
      nn::unit_norm(h_BTD, norm_eps_) * beside_.router_weight().to(h_BTD.scalar_type());
  const at::Tensor chosen_BTD =
      experts_->forward(beside_.experts_before->forward(h_BTD), routed_BTD);
  return beside_.plain_after->forward(y_BTD) + beside_.experts_after->forward(chosen_BTD);
}

at::Tensor DecoderBlockImpl::with_input(const at::Tensor& h_BTD, const PassContext& pass) {
  const at::Tensor own_BTP = pass.layer_inputs_BTLP.select(2, layer_).contiguous();
  const at::Tensor gated_BTP = nn::gated(input_.gate->forward(h_BTD), own_BTP, gating_);
  return h_BTD + input_.norm->forward(input_.out->forward(gated_BTP));
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
  at::Tensor out_BTD = h_BTD + added(fed(h_BTD, pass), ffn_norms_, pass, 2);
  if (!input_.gate.is_empty()) out_BTD = with_input(out_BTD, pass);
  return factor_.defined() ? out_BTD * factor_.to(out_BTD.scalar_type()) : out_BTD;
}

}  // namespace weft::models
