#pragma once

#include <torch/nn/module.h>

#include <cstdint>

#include "weft/dist/group.h"
#include "weft/models/config/config.h"
#include "weft/models/load/weight_source.h"
#include "weft/nn/layers/mixture_of_experts.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/parallel/vocab_parallel.h"

namespace weft::models {

/// Makes what each layer gets beside the residual stream: features of a second embedding, cut by
/// vocabulary, and as many that are projected from the first one, which every rank has whole.
/// Source: transformers' Gemma4TextModel (per-layer embeddings).
class LayerInputs {
 public:
  /// None.
  LayerInputs() = default;
  /// Registers its modules in `body`.
  LayerInputs(const ModelConfig& config, const WeightSource& source, torch::nn::Module& body,
              const dist::Group& group);
  bool are_used() const { return !embedding_.is_empty(); }
  /// ids_BT: the tokens; x_BTD: their first embeddings, whole. Returns [B, T, layers, P].
  /// Collective.
  at::Tensor forward(const at::Tensor& ids_BT, const at::Tensor& x_BTD);

 private:
  int64_t num_layers_ = 0, width_ = 0;
  nn::VocabParallelEmbedding embedding_{nullptr};
  nn::PartialLinear projection_{nullptr};
  nn::RMSNorm norm_{nullptr};
};

}  // namespace weft::models
