#pragma once

#include <cstdint>

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

}  // namespace weft::train
