#pragma once

#include <cstdint>
#include <vector>

#include "weft/shard/split.h"
#include "weft/train/slice.h"

namespace weft::train {

/// Of a slice's elements those that this rank counts, if every element of the whole is to be
/// counted once by the ranks of the model axis together: what several of them hold is the first's,
/// and so it is with stages.
/// Ranges of the flattened shard, ascending, within slice.elements. Pure arithmetic.
std::vector<shard::Range> counted_once(const Slice& slice);

}  // namespace weft::train
