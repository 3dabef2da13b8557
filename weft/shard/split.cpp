#include "weft/shard/split.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::shard {

using core::check;
using core::ConfigError;
using core::ShapeError;

namespace {

void check_segments(const std::vector<int64_t>& segments, int64_t size, const std::string& name) {
  int64_t sum = 0;
  for (const int64_t segment : segments) {
    check<ShapeError>(segment >= 1, name, ": segment of ", segment, " in ",
                      core::list_text(segments), ", expected at least 1");
    check<ShapeError>(!__builtin_add_overflow(sum, segment, &sum), name, ": segments ",
                      core::list_text(segments), " sum to more than 2^63, expected ", size);
  }
  check<ShapeError>(sum == size, name, ": segments ", core::list_text(segments), " sum to ", sum,
                    ", expected ", size);
}

}  // namespace

Range part(int64_t units, int64_t n, int64_t rank) {
  check<ConfigError>(n >= 1 && rank >= 0 && rank < n, "shard.part: rank ", rank, " of ", n,
                     ", expected 0 <= rank < n");
  check<ConfigError>(units >= 1, "shard.part: ", units, " units, expected at least 1");
  check<ConfigError>(units >= n, "shard.part: ", units, " units over ", n,
                     " ranks leaves a rank with nothing; use 1 to ", units, " ranks");
  const int64_t base = units / n;
  const int64_t extra = units % n;
  return {rank * base + std::min(rank, extra), base + (rank < extra ? 1 : 0)};
}

std::vector<Range> slices(const Split& split, int64_t size, int64_t n, int64_t rank,
                          const std::string& name) {
  const std::vector<int64_t> segments =
      split.segments.empty() ? std::vector<int64_t>{size} : split.segments;
  check_segments(segments, size, name);
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
  check<ShapeError>(unit >= 1, name, ": unit ", unit, ", expected at least 1");
  check<ShapeError>(size >= 1 && size % unit == 0, name, ": size ", size,
                    ", expected a positive multiple of its unit ", unit);
  check<ConfigError>(n >= 1 && rank >= 0 && rank < n, name, ": rank ", rank, " of ", n,
                     ", expected 0 <= rank < n");
  check<ConfigError>(size / unit >= n, name, ": ", size / unit, " units of ", unit,
                     " cannot be cut over ", n, " ranks; use 1 to ", size / unit, " ranks");
  const Range units = part(size / unit, n, rank);
  return {units.start * unit, units.length * unit};
}

}  // namespace weft::shard
