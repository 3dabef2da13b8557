#include "weft/models/decoder/inputs/layer_inputs.h"

#include <cmath>

#include "weft/models/decoder/decoder_names.h"
#include "weft/models/decoder/layer_parts.h"

// Shape letters: B batch, T tokens, D width, L layers, P features of one layer.

namespace weft::models {

LayerInputs::LayerInputs(const ModelConfig& config, const WeightSource& source,
                         torch::nn::Module& body, const dist::Group& group)
    : num_layers_(config.num_layers), width_(config.layer_inputs.width) {
  const auto name = [&](Part part) { return model_name(config, {part}); };
  const auto own_name = [&](Part part) { return module_name(config, {part}); };
  embedding_ = body.register_module(
      own_name(Part::kInputEmbedding),
      nn::VocabParallelEmbedding(source.linear(name(Part::kInputEmbedding), false),
                                 config.layer_inputs.vocab_size, group));
  projection_ =
      body.register_module(own_name(Part::kInputProjection),
                           nn::PartialLinear(source.linear(name(Part::kInputProjection), true)));
  source.check_in_order(*projection_->inner(), name(Part::kInputProjection));
  norm_ = body.register_module(own_name(Part::kInputProjectionNorm),
                               norm(config, source, {Part::kInputProjectionNorm}));
}

at::Tensor LayerInputs::forward(const at::Tensor& ids_BT, const at::Tensor& x_BTD) {
  const double width = static_cast<double>(x_BTD.size(-1));
  const at::Tensor projected = projection_->forward(x_BTD) / std::sqrt(width);
  const at::Tensor normed_BTLP =
      norm_->forward(projected.unflatten(-1, {num_layers_, width_}).contiguous());
  const at::Tensor looked_up = embedding_->forward(ids_BT) * std::sqrt(static_cast<double>(width_));
  return (normed_BTLP + looked_up.view_as(normed_BTLP)) * std::sqrt(0.5);
}

}  // namespace weft::models
