#pragma once

#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/nn/parallel/parallel_linear.h"
#include "weft/quant/quantized_matrix.h"

namespace weft::nn {

/// How shard_linear cuts.
struct ShardOptions {
  /// Lengths of the parts of a fused layer (q, k, v) along the cut dim, each cut on its own; empty:
  /// one part. They may differ.
  std::vector<int64_t> segments = {};
  /// The run of features that is never cut, e.g. head_dim; 0: one feature, or the quant group where
  /// quantized columns are cut. Layers that follow each other need the same.
  int64_t unit = 0;
  /// Begins messages.
  std::string name = "linear";
};

/// The parallel layer of which `linear` is the whole: every rank calls it with an equal whole and
/// keeps its own part, copied, so that the whole can be released. Any size and any number of ranks
/// up to the number of units: shards may differ by one unit. Quantized weights are cut bit for
/// bit, LoRA adapters with their base. An optimizer that was made for the whole's parameters does
/// not move the copies; Linear::shard keeps the tensors. Collective: the ranks compare a hash of
/// their wholes and throw CommError, all of them, if these or the cuts differ.
/// Throws ShapeError or ConfigError naming `options.name`, the sizes and the ranks that work; the
/// sizes are equal on all ranks, so all fail alike. ConfigError, too, for a layer that can't be
/// cut.
std::shared_ptr<ParallelLinearImpl> shard_linear(const LinearLike& linear, ShardKind kind,
                                                 const dist::Group& group,
                                                 const ShardOptions& options = {});
/// The same for a layout that you give, e.g. one of shard::head_layouts; its dim is set by `kind`.
std::shared_ptr<ParallelLinearImpl> shard_linear(const LinearLike& linear, ShardKind kind,
                                                 const dist::Group& group, shard::Layout layout);
std::shared_ptr<ParallelLinearImpl> shard_linear(const torch::nn::Linear& linear, ShardKind kind,
                                                 const dist::Group& group,
                                                 const ShardOptions& options = {});

/// The linear's own weight and bias as an inner linear: shared, not copied.
std::shared_ptr<LinearLike> linear_like(const torch::nn::Linear& linear);

/// MLX's quantized siblings: makers of the same two layers from a whole quantized weight. `bias` is
/// the whole's [out], or undefined.
AllToShardedLinear quantized_all_to_sharded_linear(const quant::QuantizedMatrix& weight,
                                                   const at::Tensor& bias, const dist::Group& group,
                                                   const ShardOptions& options = {});
ShardedToAllLinear quantized_sharded_to_all_linear(const quant::QuantizedMatrix& weight,
                                                   const at::Tensor& bias, const dist::Group& group,
                                                   const ShardOptions& options = {});

}  // namespace weft::nn
