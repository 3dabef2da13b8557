#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>

#include "weft/dist/parallelism.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::nn {

/// A new AllToShardedLinear whose weight is quantized by quant::quantize_affine: `bits` of 2, 3, 4,
/// 5, 6 or 8, one scale and offset for each `group_size` input features. The weight is frozen;
/// weight and bias begin as AllToShardedLinear's do. quantized_all_to_sharded_linear makes one of
/// a weight that is there.
class QuantizedAllToShardedLinearImpl
    : public Cloned<QuantizedAllToShardedLinearImpl, AllToShardedLinearImpl> {
 public:
  /// Throws ConfigError if a rank would hold nothing, ShapeError unless group_size divides
  /// in_features. Collective.
  QuantizedAllToShardedLinearImpl(int64_t in_features, int64_t out_features, bool bias = true,
                                  int64_t group_size = 64, int64_t bits = 4,
                                  const dist::Group& group = dist::model_group());
};
TORCH_MODULE(QuantizedAllToShardedLinear);

/// The same for ShardedToAllLinear. Where there are more ranks than quant groups, these are cut.
class QuantizedShardedToAllLinearImpl
    : public Cloned<QuantizedShardedToAllLinearImpl, ShardedToAllLinearImpl> {
 public:
  /// Throws as QuantizedAllToShardedLinear does. Collective.
  QuantizedShardedToAllLinearImpl(int64_t in_features, int64_t out_features, bool bias = true,
                                  int64_t group_size = 64, int64_t bits = 4,
                                  const dist::Group& group = dist::model_group());
};
TORCH_MODULE(QuantizedShardedToAllLinear);

}  // namespace weft::nn
