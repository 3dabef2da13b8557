#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/shard/layout.h"
#include "weft/shard/sum_order.h"

namespace weft::train {

/// The tree over a step's sequences, by their place in the step, in which their gradients are added
/// with train.exact. It is cut wherever some number of data ranks cuts the sequences, so that each
/// rank adds up whole subtrees and few sums cross ranks. Throws ConfigError unless there is at
/// least one.
shard::SumOrder sequence_order(int64_t sequences);

/// What each of so many data ranks has of them: as many. Throws ConfigError unless ranks divide
/// sequences.
shard::Layout sequence_layout(int64_t sequences, int64_t ranks);

/// Sequences whose gradients a rank makes in one backward: a whole subtree.
struct SequenceGroup {
  /// Their places among the rank's own.
  shard::Range sequences;
  /// The subtree: a piece for each sequence, one node.
  std::shared_ptr<const shard::SumPlan> order;
};

/// What a rank makes of its sequences of a step.
struct SequencePlan {
  std::vector<SequenceGroup> groups;
  /// The rest of the tree, whose pieces are the groups.
  shard::SumPlan sums;
};

/// That of one of so many data ranks, in groups of at most `together` sequences, as large as the
/// tree allows: as many groups on every rank, so that the ranks' backwards go together. Whatever
/// `together` is, sums have the same bits. Throws ConfigError unless ranks divide sequences.
SequencePlan sequence_plan(int64_t sequences, int64_t ranks, int64_t rank, int64_t together);

/// The most gradients that a data rank keeps at the same time in such groups, that of the last
/// backward included.
int64_t most_kept_gradients(int64_t sequences, int64_t ranks, int64_t together);

}  // namespace weft::train
