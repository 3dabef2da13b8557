#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "weft/models/config/config.h"
#include "weft/models/decoder/token_mixer.h"
#include "weft/models/load/weight_source.h"
#include "weft/nn/parallel/parallel_linear.h"
#include "weft/nn/recurrent/gated_delta_net.h"

namespace weft::models {

/// What the layer is made of.
struct GatedDeltaLayerParts {
  nn::AllToShardedLinear channels, gates, rates, decays;
  nn::GatedDeltaParts net;
  nn::ShardedToAllLinear output;
  /// This rank's.
  nn::DeltaHeads heads;
};

/// A gated delta net with its projections, cut by key heads: one all-reduce forward, one backward
/// and a small one of the norm's gradient. Source: Qwen3-Next, as transformers'
/// modeling_qwen3_next.py has it; weights are those of modeling_qwen3_5.py, where projections stand
/// apart.
class GatedDeltaLayerImpl : public TokenMixerImpl {
 public:
  GatedDeltaLayerImpl(const ModelConfig& config, const WeightSource& source, int64_t layer,
                      const dist::Group& group);
  at::Tensor forward(const at::Tensor& x_BTD, const PassContext& pass) override;
  nn::StateSizes state_sizes() const override;
  const GatedDeltaLayerParts& parts() const { return parts_; }

 private:
  int64_t layer_;
  GatedDeltaLayerParts parts_;
};

}  // namespace weft::models
