#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/train/slice.h"

namespace weft::train {

/// Consecutive elements of a slice that are consecutive in the row-major whole, too.
struct SliceRun {
  /// The first one's place in the whole.
  int64_t whole = 0;
  /// And in the slice, from its start.
  int64_t offset = 0;
  int64_t length = 0;

  bool operator==(const SliceRun&) const = default;
};

/// Elements of a tensor of these sizes. Throws ShapeError, beginning with `where`, for a negative
/// size or more elements than 63 bits count.
int64_t count_elements(const std::vector<int64_t>& sizes, const std::string& where);

/// Elements of the shard that the slice is a part of.
int64_t shard_elements(const Slice& slice);

/// Throws ShapeError, beginning with `where`, for a slice that can't be: a cut of another size than
/// the whole's or without this rank, elements beyond the shard's end.
void check_slice(const Slice& slice, const std::string& where);

/// A slice as runs of the whole, the longest there are, ascending in the whole. `slice` is a
/// checked one.
std::vector<SliceRun> slice_runs(const Slice& slice);

/// Elements that two slices of one whole have in common.
struct SharedRun {
  /// Where they begin in the one and in the other.
  int64_t wanted = 0;
  int64_t held = 0;
  int64_t length = 0;

  bool operator==(const SharedRun&) const = default;
};

/// Takes out of `wanted` what `held` has, both ascending in the whole, and says where it lies; what
/// is left in `wanted` somebody else has to have.
std::vector<SharedRun> take_runs(std::vector<SliceRun>& wanted, const std::vector<SliceRun>& held);

}  // namespace weft::train
