#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "weft/dist/group.h"
#include "weft/shard/sum_order.h"

namespace weft::dist {

/// Sums over ranks that have the same bits for any number of them, on any backend: the ranks
/// exchange the nodes of a tree that they hold (shard::SumOrder), and each adds all of them in the
/// tree's order. It moves as many numbers as a gather of the ranks' nodes.
class OrderedSum {
 public:
  /// `plan` is this rank's.
  OrderedSum(Group group, shard::SumPlan plan);

  const shard::SumPlan& plan() const { return plan_; }
  /// This rank's one node is the whole's sum: nothing is left to exchange or add.
  bool is_alone() const { return group_.size() == 1 && plan_.nodes.size() == 1; }
  /// Room for plan().nodes of `count` float32 numbers each, one after the other. Not collective.
  float* room(int64_t count);
  /// The whole's sum of what was written to the last room, `count` numbers, in memory that is the
  /// caller's until the next room. Collective. Throws CommError as all collectives.
  float* sum(int64_t count);
  /// The same of many numbers in the caller's memory: plan().nodes of `count` each, end to end, of
  /// which the first becomes the whole's sum. The ranks exchange a few at a time, so that little
  /// more memory is needed. Collective. Throws CommError as all collectives.
  void sum_in_place(float* nodes, int64_t count);

 private:
  Group group_;
  shard::SumPlan plan_;
  /// Memory of the largest room so far: own_ and all_ lie in it.
  at::Tensor memory_;
  /// [slots, count], and [ranks * slots, count] where there are several ranks.
  at::Tensor own_, all_;
};

}  // namespace weft::dist
