#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "weft/shard/sum_order.h"

namespace weft::nn::ordered {

/// How what the sequences of a batch add to a weight's gradient is summed: a piece for each
/// sequence, one node. A batch's rows are those of its sequences, end to end, as many of each.
using SequenceOrder = std::shared_ptr<const shard::SumPlan>;

/// So many sequences whose gradients nobody adds up, or one.
SequenceOrder without_order(int64_t sequences);

/// Rows of each sequence of a batch of `rows`. Throws ShapeError unless they are as many of each.
int64_t rows_of_each(int64_t rows, const shard::SumPlan& order);

/// The sum of each sequence's part, parts[i], in the order; overwrites them.
at::Tensor summed_parts(const at::Tensor& parts, const shard::SumPlan& order);

}  // namespace weft::nn::ordered
