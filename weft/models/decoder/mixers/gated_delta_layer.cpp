#include "weft/models/decoder/mixers/gated_delta_layer.h"

#include <string>

#include "weft/models/decoder/layer_parts.h"
#include "weft/nn/linear/fused_linear.h"
#include "weft/nn/recurrent/gated_delta_each.h"

// Shape letters: B batch, T tokens; c, f, v: this rank's channels, features of values, value heads.

namespace weft::models {
namespace {

nn::HeadNumbers head_numbers(const WeightSource& source, const std::string& base) {
  return nn::HeadNumbers(source.vector(base + ".weight"), source.layout(base));
}

nn::GatedDeltaParts make_delta_parts(const ModelConfig& config, const WeightSource& source,
                                     int64_t layer, const dist::Group& group) {
  const auto base = [&](Part part) { return model_name(config, {part, layer}); };
  const std::string convolution = base(Part::kConvolution);
  const at::Tensor taps = source.vector(convolution + ".weight");
  return {
      nn::ShortConvolution(taps.view({taps.size(0), 1, config.recurrent.num_taps}),
                           source.layout(convolution)),
      head_numbers(source, base(Part::kDeltaDecayLog)),
      head_numbers(source, base(Part::kDeltaStepBias)),
      nn::HeadRMSNorm(source.vector(base(Part::kDeltaNorm) + ".weight"), config.norm_eps, group)};
}

}  // namespace

GatedDeltaLayerImpl::GatedDeltaLayerImpl(const ModelConfig& config, const WeightSource& source,
                                         int64_t layer, const dist::Group& group)
    : layer_(layer),
      channels_(all_to_sharded(source, model_name(config, {Part::kDeltaChannels, layer}), group)),
      gates_(all_to_sharded(source, model_name(config, {Part::kDeltaGate, layer}), group)),
      rates_(all_to_sharded(source, model_name(config, {Part::kDeltaRate, layer}), group)),
      decays_(all_to_sharded(source, model_name(config, {Part::kDeltaDecay, layer}), group)),
      parts_(make_delta_parts(config, source, layer, group)),
      output_(sharded_to_all(source, model_name(config, {Part::kDeltaOut, layer}), group)),
      heads_(config.recurrent.heads.with_value_heads(parts_.decay_log->weight.size(0))) {
  const auto add = [&](Part part, const auto& module) {
    register_module(module_name(config, {part, layer}), module);
  };
  add(Part::kDeltaChannels, channels_);
  add(Part::kDeltaGate, gates_);
  add(Part::kDeltaRate, rates_);
  add(Part::kDeltaDecay, decays_);
  add(Part::kConvolution, parts_.convolution);
  add(Part::kDeltaDecayLog, parts_.decay_log);
  add(Part::kDeltaStepBias, parts_.step_bias);
  add(Part::kDeltaNorm, parts_.norm);
  add(Part::kDeltaOut, output_);
}

at::Tensor GatedDeltaLayerImpl::forward(const at::Tensor& x_BTD, const PassContext& pass) {
  const auto projected = nn::linears_of_shared(
      {channels_->inner(), gates_->inner(), rates_->inner(), decays_->inner()}, x_BTD,
      channels_->group(), pass.rows);
  const auto tokens = [&](const at::Tensor& x) {
    return x.view({pass.num_sequences, -1, x.size(-1)});
  };
  const nn::DeltaProjections in = {tokens(projected[0]), tokens(projected[1]), tokens(projected[2]),
                                   tokens(projected[3])};
  const nn::DeltaState state = pass.cache == nullptr ? nn::DeltaState() : pass.cache->state(layer_);
  const bool is_exact = output_->ordered() != nullptr && !state.empty();
  const at::Tensor mixed_BTf =
      is_exact ? nn::gated_delta_each(heads_, parts_, in, state)
               : nn::gated_delta_net(heads_, parts_, in, pass.documents_BT, state);
  return output_->forward_rows(pass.rows.empty() ? mixed_BTf : mixed_BTf.flatten(0, 1), pass.rows);
}

nn::StateSizes GatedDeltaLayerImpl::state_sizes() const {
  return nn::delta_state_sizes(heads_, parts_.convolution->num_past());
}

}  // namespace weft::models
