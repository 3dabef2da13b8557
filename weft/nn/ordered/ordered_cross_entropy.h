#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "weft/dist/ordered_sum.h"
#include "weft/shard/split.h"

namespace weft::nn::ordered {

/// The sums over the tokens of each sequence of vocab_parallel_cross_entropy's losses, with the
/// same bits on any number of ranks: exponentials are summed in the pieces of `sum`, tokens one
/// after another. logits_BTv: float32 on the CPU, this rank's columns `vocab`, which backward
/// overwrites; targets_BT: int64, equal on all ranks, -100 counts for nothing. Returns float64 [B],
/// the same on all ranks of `group`. Collective over `group`, the sum's own. Throws ShapeError for
/// what does not fit and for targets outside of the `vocab_size` tokens.
at::Tensor cross_entropy_sum(const at::Tensor& logits_BTv, const at::Tensor& targets_BT,
                             const shard::Range& vocab, int64_t vocab_size,
                             const dist::Group& group,
                             const std::shared_ptr<dist::OrderedSum>& sum);

}  // namespace weft::nn::ordered
