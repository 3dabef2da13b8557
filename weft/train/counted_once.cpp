#include "weft/train/counted_once.h"

#include <algorithm>
#include <numeric>

namespace weft::train {
namespace {

using shard::Range;

// What is left of `range` without the elements of `taken`.
std::vector<Range> without(const Range& range, const std::vector<Range>& taken) {
  std::vector<Range> left = {range};
  for (const Range& other : taken) {
    std::vector<Range> next;
    for (const Range& each : left) {
      const int64_t end = std::min(each.end(), std::max(each.start, other.start));
      const int64_t start = std::max(each.start, std::min(each.end(), other.end()));
      if (end > each.start) next.push_back({each.start, end - each.start});
      if (each.end() > start && start >= end) next.push_back({start, each.end() - start});
    }
    left = next;
  }
  return left;
}

// Positions along the shard's dim that no rank before this one holds.
std::vector<Range> own_positions(const shard::Layout& layout, int64_t rank) {
  std::vector<Range> before;
  for (int64_t r = 0; r < rank; ++r) {
    before.insert(before.end(), layout.of(r).begin(), layout.of(r).end());
  }
  std::vector<Range> positions;
  int64_t offset = 0;
  for (const Range& range : layout.of(rank)) {
    for (const Range& left : without(range, before)) {
      positions.push_back({offset + left.start - range.start, left.length});
    }
    offset += range.length;
  }
  return positions;
}

int64_t product(const std::vector<int64_t>& sizes, size_t from, size_t to) {
  return std::accumulate(sizes.begin() + static_cast<int64_t>(from),
                         sizes.begin() + static_cast<int64_t>(to), int64_t{1}, std::multiplies<>());
}

void add_common(std::vector<Range>& ranges, const Range& a, const Range& b) {
  const int64_t start = std::max(a.start, b.start);
  const int64_t end = std::min(a.end(), b.end());
  if (start < end) ranges.push_back({start, end - start});
}

}  // namespace

std::vector<Range> counted_once(const Slice& slice) {
  if (slice.is_copy) return {};
  if (!slice.cut.has_value()) {
    return slice.model_rank == 0 ? std::vector<Range>{slice.elements} : std::vector<Range>();
  }
  if (!slice.cut->overlaps()) return {slice.elements};
  const auto dim = static_cast<size_t>(slice.cut->dim);
  const int64_t length = slice.cut->lengths()[static_cast<size_t>(slice.model_rank)];
  const int64_t outer = product(slice.sizes, 0, dim);
  const int64_t inner = product(slice.sizes, dim + 1, slice.sizes.size());
  std::vector<Range> counted;
  for (int64_t o = 0; o < outer; ++o) {
    for (const Range& position : own_positions(*slice.cut, slice.model_rank)) {
      add_common(counted, slice.elements,
                 {(o * length + position.start) * inner, position.length * inner});
    }
  }
  return counted;
}

}  // namespace weft::train
