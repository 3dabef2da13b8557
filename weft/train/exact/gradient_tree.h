#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/dist/group.h"
#include "weft/shard/split.h"
#include "weft/shard/sum_order.h"

namespace weft::train {

/// The gradient of a step, made of those of its sequences by the tree of sequence_order: the same
/// bits on any number of data ranks. Keeps at most one gradient more than the tree has levels
/// between this rank's sequences.
class GradientTree {
 public:
  /// `batch`: the ranks that share a step's `sequences`, in their order.
  GradientTree(int64_t sequences, dist::Group batch);

  /// Whether all of this rank's sequences of the step were added.
  bool is_complete() const { return next_ == std::ssize(plan_.pieces); }
  /// Adds the next one's gradient: float32 tensors, each time of the same shapes, which are this
  /// tree's from here on. Not collective. Throws ConfigError if it is complete.
  void add(std::vector<at::Tensor> gradients);
  /// The elements of the step's gradient that this rank owns: `owned` says by rank of the batch
  /// group which, of the tensors end to end and zeros behind them; all ranks own as many. Forgets
  /// the gradients. Collective over the batch group. Throws ConfigError unless it is complete.
  at::Tensor finish(const std::vector<shard::Range>& owned);

 private:
  std::vector<at::Tensor> exchanged(const std::vector<shard::Range>& owned) const;

  dist::Group batch_;
  // By rank.
  std::vector<shard::SumPlan> plans_;
  const shard::SumPlan& plan_;
  // By piece; empty: not here yet, or part of another one's.
  std::vector<std::vector<at::Tensor>> sums_;
  int64_t next_ = 0;
  size_t next_step_ = 0;
};

}  // namespace weft::train
