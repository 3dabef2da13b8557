#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/dist/group.h"
#include "weft/train/optimizer/optimizer.h"
#include "weft/train/slice_runs.h"

namespace weft::train {

/// All parameters that some rank of a group owns a part of, in one order on all ranks.
class ParameterTable {
 public:
  /// Collective over `group`. Throws ShapeError, on all ranks, if ranks have other sizes for a
  /// name.
  ParameterTable(const std::vector<OwnedSlice>& slices, const dist::Group& group);

  /// The wholes' sizes, by index.
  const std::vector<std::vector<int64_t>>& sizes() const { return sizes_; }
  /// Of a parameter that this rank gave.
  size_t index(const std::string& name) const { return by_name_.at(name); }

 private:
  std::vector<std::vector<int64_t>> sizes_;
  std::map<std::string, size_t> by_name_;
};

/// What counted_once says of a slice, as runs of it.
std::vector<SliceRun> counted_runs(const Slice& slice);

}  // namespace weft::train
