#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "weft/nn/linear/linear_like.h"
#include "weft/quant/quantized_matrix.h"

namespace weft::nn {

/// What the kinds of inner linear layers have in common. None of it records gradients.

/// Throw ShapeError, beginning with `where`: unless x is [..., in_features]; unless the bias is
/// [out_features] or undefined.
void check_input(const at::Tensor& x, int64_t in_features, const char* where);
void check_bias(const at::Tensor& bias, int64_t out_features, const char* where);

/// The layer as one that can be cut. Throws ConfigError, beginning with `where`, for one that only
/// computes, such as a weight in panels or on a GPU.
const ShardableLinear& shardable(const LinearLike& linear, std::string_view where);

/// Throws ShapeError, beginning with `where`, unless `linear` is as large along the cut's dim as
/// the cut's layout says, and InternalError if dim and kind don't belong together.
void check_shardable(const LinearLike& linear, const LinearCut& cut, const char* where);

/// This rank's ranges of `whole` along the cut's dim, one after another, in memory of its own.
at::Tensor own_part(const at::Tensor& whole, const LinearCut& cut);

/// The whole of which `part` is this rank's shard, on every rank. Collective over the cut's group.
at::Tensor gather_whole(const at::Tensor& part, const LinearCut& cut);

/// All ranks' shards of a quantized matrix end to end along the cut's dim, in rank order; all
/// ranks' `part` must have one group size. Collective over the cut's group.
quant::QuantizedMatrix gather_shards(const quant::QuantizedMatrix& part, const LinearCut& cut);

}  // namespace weft::nn
