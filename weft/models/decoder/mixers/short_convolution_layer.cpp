#include "weft/models/decoder/mixers/short_convolution_layer.h"

#include <string>

#include "weft/models/decoder/layer_parts.h"
#include "weft/nn/linear/fused_linear.h"

// Shape letters: B batch, T tokens, c: this rank's channels.

namespace weft::models {
namespace {

// GGUF's taps [c, L] as folders have them, [c, 1, L].
nn::ShortConvolution make_convolution(const ModelConfig& config, const WeightSource& source,
                                      const PartPlace& place) {
  const std::string base = model_name(config, place);
  const at::Tensor taps = source.vector(base + ".weight");
  return nn::ShortConvolution(taps.view({taps.size(0), 1, config.recurrent.num_taps}),
                              source.layout(base));
}

}  // namespace

ShortConvolutionLayerImpl::ShortConvolutionLayerImpl(const ModelConfig& config,
                                                     const WeightSource& source, int64_t layer,
                                                     const dist::Group& group)
    : layer_(layer),
      in_proj_(register_module(
          "in_proj",
          all_to_sharded(source, model_name(config, {Part::kConvolutionIn, layer}), group))),
      convolution_(register_module(module_name(config, {Part::kConvolution, layer}),
                                   make_convolution(config, source, {Part::kConvolution, layer}))),
      out_proj_(register_module(
          "out_proj",
          sharded_to_all(source, model_name(config, {Part::kConvolutionOut, layer}), group))) {}

at::Tensor ShortConvolutionLayerImpl::forward(const at::Tensor& x_BTD, const PassContext& pass) {
  const at::Tensor projected =
      nn::linears_of_shared({in_proj_->inner()}, x_BTD, in_proj_->group(), pass.rows).front();
  const auto parts = projected.view({pass.num_sequences, -1, projected.size(-1)}).chunk(3, -1);
  const at::Tensor state_BPc =
      pass.cache == nullptr ? at::Tensor() : pass.cache->state(layer_).front();
  const at::Tensor mixed_BTc =
      parts[1] * convolution_->forward(parts[0] * parts[2], pass.documents_BT, state_BPc);
  return out_proj_->forward_rows(pass.rows.empty() ? mixed_BTc : mixed_BTc.flatten(0, 1),
                                 pass.rows);
}

nn::StateSizes ShortConvolutionLayerImpl::state_sizes() const {
  return {{convolution_->num_past(), convolution_->weight.size(0)}};
}

}  // namespace weft::models
