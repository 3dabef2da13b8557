#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/dist/group.h"
#include "weft/shard/split.h"
#include "weft/train/exact/sequence_order.h"

namespace weft::train {

/// The gradient of a step, made of those of its sequences by the tree of sequence_order: the same
/// bits on any number of data ranks. Keeps at most most_kept_gradients of them.
class GradientTree {
 public:
  /// `batch`: the ranks that share a step's `sequences`, in their order; each makes the gradients
  /// of up to `together` of them at once (sequence_plan).
  GradientTree(int64_t sequences, int64_t together, dist::Group batch);

  /// Whether all of this rank's groups of sequences were added.
  bool is_complete() const { return next_ == std::ssize(plan_.groups); }
  /// Adds the next group's gradient: float32 tensors, each time of the same shapes, which are this
  /// tree's from here on. Not collective. Throws ConfigError if it is complete.
  void add(std::vector<at::Tensor> gradients);
  /// Writes the elements of the step's gradient that this rank owns to `to`: `owned` says by rank
  /// of the batch group which, of the tensors end to end and zeros behind them; all ranks own as
  /// many. Forgets the gradients. Collective over the batch group. Throws ConfigError unless it is
  /// complete.
  void finish(const std::vector<shard::Range>& owned, at::Tensor& to);

 private:
  std::vector<at::Tensor> exchanged(const std::vector<shard::Range>& owned);
  std::vector<at::Tensor>& node(size_t i) {
    return sums_[static_cast<size_t>(plan_.sums.nodes[i])];
  }

  dist::Group batch_;
  SequencePlan plan_;
  // Sums that each rank shares with the others.
  std::vector<size_t> num_nodes_;
  // By group; empty: not here yet, or part of another one's.
  std::vector<std::vector<at::Tensor>> sums_;
  int64_t next_ = 0;
  size_t next_step_ = 0;
};

}  // namespace weft::train
