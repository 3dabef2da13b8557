#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "weft/models/config/config.h"
#include "weft/models/load/weight_source.h"
#include "weft/nn/layers/mixture_of_experts.h"
#include "weft/nn/linear/fused_linear.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::models {

/// A layer's down(nn::gated(gate(x), up(x))), cut by ffn: one all-reduce forward and one backward.
class FeedForwardLayerImpl : public torch::nn::Module {
 public:
  FeedForwardLayerImpl(const ModelConfig& config, const WeightSource& source, int64_t layer,
                       const dist::Group& group);
  /// x_BTD, whole, or this rank's rows of it [r, D], if `rows` says so. Returns the same shape.
  /// Collective.
  at::Tensor forward(const at::Tensor& x_BTD, const nn::RowCounts& rows = {});
  const nn::AllToShardedLinear& gate_proj() const { return gate_proj_; }
  const nn::AllToShardedLinear& up_proj() const { return up_proj_; }
  const nn::ShardedToAllLinear& down_proj() const { return down_proj_; }

 private:
  nn::Gating gating_;
  nn::AllToShardedLinear gate_proj_, up_proj_;
  nn::ShardedToAllLinear down_proj_;
};
TORCH_MODULE(FeedForwardLayer);

/// The experts of a layer that has some, each cut by ffn, or dealt out whole, as the plan has them.
nn::MixtureOfExperts make_experts(const ModelConfig& config, const WeightSource& source,
                                  int64_t layer, const dist::Group& group);

}  // namespace weft::models
