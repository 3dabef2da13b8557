#include "weft/models/decoder/mixers/gated_delta_layer.h"

#include <string>
#include <utility>

#include "weft/models/decoder/layer_parts.h"
#include "weft/nn/linear/fused_linear.h"

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

GatedDeltaLayerParts make_parts(const ModelConfig& config, const WeightSource& source,
                                int64_t layer, const dist::Group& group) {
  const auto projection = [&](Part part) {
    return all_to_sharded(source, model_name(config, {part, layer}), group);
  };
  nn::GatedDeltaParts net = make_delta_parts(config, source, layer, group);
  const nn::DeltaHeads heads =
      config.recurrent.heads.with_value_heads(net.decay_log->weight.size(0));
  return {projection(Part::kDeltaChannels),
          projection(Part::kDeltaGate),
          projection(Part::kDeltaRate),
          projection(Part::kDeltaDecay),
          std::move(net),
          sharded_to_all(source, model_name(config, {Part::kDeltaOut, layer}), group),
          heads};
}

}  // namespace

GatedDeltaLayerImpl::GatedDeltaLayerImpl(const ModelConfig& config, const WeightSource& source,
                                         int64_t layer, const dist::Group& group)
    : layer_(layer), parts_(make_parts(config, source, layer, group)) {
  const auto add = [&](Part part, const auto& module) {
    register_module(module_name(config, {part, layer}), module);
  };
  add(Part::kDeltaChannels, parts_.channels);
  add(Part::kDeltaGate, parts_.gates);
  add(Part::kDeltaRate, parts_.rates);
  add(Part::kDeltaDecay, parts_.decays);
  add(Part::kConvolution, parts_.net.convolution);
  add(Part::kDeltaDecayLog, parts_.net.decay_log);
  add(Part::kDeltaStepBias, parts_.net.step_bias);
  add(Part::kDeltaNorm, parts_.net.norm);
  add(Part::kDeltaOut, parts_.output);
}

at::Tensor GatedDeltaLayerImpl::forward(const at::Tensor& x_BTD, const PassContext& pass) {
  const auto projected = nn::linears_of_shared({parts_.channels->inner(), parts_.gates->inner(),
                                                parts_.rates->inner(), parts_.decays->inner()},
                                               x_BTD, parts_.channels->group(), pass.rows);
  const auto tokens = [&](const at::Tensor& x) {
    return x.view({pass.num_sequences, -1, x.size(-1)});
  };
  const nn::DeltaProjections in = {tokens(projected[0]), tokens(projected[1]), tokens(projected[2]),
                                   tokens(projected[3])};
  const nn::DeltaState state = pass.cache == nullptr ? nn::DeltaState() : pass.cache->state(layer_);
  const at::Tensor mixed_BTf =
      nn::gated_delta_net(parts_.heads, parts_.net, in, pass.documents_BT, state);
  return parts_.output->forward_rows(pass.rows.empty() ? mixed_BTf : mixed_BTf.flatten(0, 1),
                                     pass.rows);
}

nn::StateSizes GatedDeltaLayerImpl::state_sizes() const {
  return nn::delta_state_sizes(parts_.heads, parts_.net.convolution->num_past());
}

}  // namespace weft::models
