#include "weft/shard/split.h"

#include <algorithm>
#include <numeric>

#include "weft/core/error.h"

namespace weft::shard {

using core::check;
using core::ConfigError;
using core::ShapeError;

Range part(int64_t units, int64_t n, int64_t rank) {
  check<ConfigError>(n >= 1 && rank >= 0 && rank < n, "shard.part: rank ", rank, " of ", n,
                     ", expected 0 <= rank < n");
  check<ConfigError>(units >= n, "shard.part: ", units, " units over ", n,
                     " ranks leaves a rank with nothing; use n from 1 to ", std::max<int64_t>(units, 1));
  const int64_t base = units / n;
  const int64_t extra = units % n;
  return {rank * base + std::min(rank, extra), base + (rank < extra ? 1 : 0)};
}

std::vector<Range> slices(const Split& split, int64_t size, int64_t n, int64_t rank,
                          const std::string& name) {
  const std::vector<int64_t> segments =
      split.segments.empty() ? std::vector<int64_t>{size} : split.segments;
  const int64_t sum = std::accumulate(segments.begin(), segments.end(), int64_t{0});
  check<ShapeError>(sum == size, name, ": segments ", core::list_text(segments), " sum to ", sum,
                    ", expected ", size);
  std::vector<Range> ranges;
  int64_t start = 0;
  for (const int64_t segment : segments) {
    const Range local = NamedSplit{name, segment, split.unit}.range(n, rank);
    ranges.push_back({start + local.start, local.length});
    start += segment;
  }
  return ranges;
}

int64_t total_length(const std::vector<Range>& ranges) {
  int64_t total = 0;
  for (const Range& range : ranges) total += range.length;
  return total;
}

Range NamedSplit::range(int64_t n, int64_t rank) const {
  check<ShapeError>(unit >= 1 && size >= 1 && size % unit == 0, name, ": size ", size,
                    " is not a multiple of its unit ", unit);
  check<ConfigError>(size / unit >= n, name, ": ", size / unit, " units of ", unit,
                     " cannot be cut over ", n, " ranks; use 1 to ", size / unit, " ranks");
  const Range units = part(size / unit, n, rank);
  return {units.start * unit, units.length * unit};
}

int64_t common_unit(const std::vector<int64_t>& units) {
  int64_t unit = 1;
  for (const int64_t each : units) {
    check<ShapeError>(each >= 1, "shard.common_unit: unit ", each, ", expected at least 1");
    unit = std::lcm(unit, each);
  }
  return unit;
}

}  // namespace weft::shard
