#include "weft/train/flat_layout.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::train {

FlatLayout::FlatLayout(const std::vector<int64_t>& numels, int64_t data, int64_t replica)
    : data_(data), replica_(replica) {
  core::check<core::ConfigError>(data >= 1 && replica >= 1,
                                 "train.FlatLayout: expected at least one rank on each axis, got ",
                                 replica, " replicas and ", data, " data ranks");
  for (const int64_t numel : numels) {
    core::check<core::ShapeError>(numel >= 0, "train.FlatLayout: a parameter of ", numel,
                                  " elements");
    parameters_.push_back({num_elements_, numel});
    num_elements_ += numel;
  }
  const int64_t run = data * replica * kAlignment;
  length_ = (num_elements_ + run - 1) / run * run;
}

shard::Range FlatLayout::share(int64_t data_rank) const {
  return {data_rank * share_length(), share_length()};
}

shard::Range FlatLayout::owned(int64_t data_rank, int64_t replica_rank) const {
  return {share(data_rank).start + replica_rank * owned_length(), owned_length()};
}

std::vector<FlatLayout::Piece> FlatLayout::pieces(const shard::Range& range) const {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const shard::Range& parameter = parameters_[i];
    const int64_t start = std::max(range.start, parameter.start);
    const int64_t end = std::min(range.end(), parameter.end());
    if (start >= end) continue;
    pieces.push_back({i, {start - parameter.start, end - start}, start - range.start});
  }
  return pieces;
}

}  // namespace weft::train
