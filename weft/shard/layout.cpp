#include "weft/shard/layout.h"

#include <algorithm>
#include <numeric>

#include "weft/core/error.h"
#include "weft/shard/heads.h"

namespace weft::shard {
namespace {

using core::check;
using core::ShapeError;

/// A range of the whole and where its first element lies when the shards are laid end to end.
struct Placed {
  Range range;
  int64_t offset;
};

// By start; of equal starts the earlier rank's first, so that its copy is the one taken.
std::vector<Placed> placed_by_start(const Layout& layout) {
  std::vector<Placed> placed;
  int64_t offset = 0;
  for (const auto& ranges : layout.ranges) {
    for (const Range& range : ranges) {
      placed.push_back({range, offset});
      offset += range.length;
    }
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return a.range.start < b.range.start; });
  return placed;
}

}  // namespace

std::vector<int64_t> Layout::lengths() const {
  std::vector<int64_t> result;
  for (const auto& each : ranges) result.push_back(total_length(each));
  return result;
}

bool Layout::overlaps() const {
  const auto all = lengths();
  return std::accumulate(all.begin(), all.end(), int64_t{0}) > size;
}

std::vector<Range> Layout::gather_ranges() const {
  std::vector<Range> result;
  int64_t done = 0;
  for (const Placed& each : placed_by_start(*this)) {
    const int64_t skipped = std::max<int64_t>(done - each.range.start, 0);
    if (skipped >= each.range.length) continue;
    result.push_back({each.offset + skipped, each.range.length - skipped});
    done = each.range.end();
  }
  return result;
}

int64_t Layout::common_run(int64_t start) const {
  int64_t run = start;
  for (const auto& each : ranges) {
    for (const Range& range : each) run = std::gcd(run, std::gcd(range.start, range.end()));
  }
  return run;
}

Layout make_layout(const Split& split, int64_t size, int64_t n, const std::string& name) {
  Layout layout{split.dim, size, {}};
  for (int64_t rank = 0; rank < n; ++rank) {
    layout.ranges.push_back(slices(split, size, n, rank, name));
  }
  // n = 0 has no rank to ask.
  if (n < 1) slices(split, size, n, 0, name);
  return layout;
}

Layout contiguous_layout(int64_t dim, const std::vector<int64_t>& lengths) {
  Layout layout{dim, 0, {}};
  for (const int64_t length : lengths) {
    layout.ranges.push_back({{layout.size, length}});
    layout.size += length;
  }
  return layout;
}

void check_layout(const Layout& layout, const std::string& name) {
  int64_t done = 0;
  for (const Placed& each : placed_by_start(layout)) {
    const Range& range = each.range;
    check<ShapeError>(range.start >= 0 && range.length >= 1 && range.end() <= layout.size, name,
                      ": range of ", range.length, " from ", range.start,
                      ", expected a part of 0 to ", layout.size);
    check<ShapeError>(range.start <= done, name, ": elements ", done, " to ", range.start,
                      " are held by no rank; give every element to one");
    done = std::max(done, range.end());
  }
  check<ShapeError>(done == layout.size, name, ": elements ", done, " to ", layout.size,
                    " are held by no rank; give every element to one");
}

HeadLayouts head_layouts(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim, int64_t n,
                         HeadSplit split) {
  HeadLayouts layouts{{0, num_heads * head_dim, {}}, {0, num_kv_heads * head_dim, {}}};
  const auto features = [&](const Range& heads) {
    return std::vector<Range>{{heads.start * head_dim, heads.length * head_dim}};
  };
  for (int64_t rank = 0; rank < std::max<int64_t>(n, 1); ++rank) {
    const HeadShard shard = shard_heads(num_heads, num_kv_heads, n, rank, split);
    layouts.query.ranges.push_back(features(shard.heads));
    layouts.kv.ranges.push_back(features(shard.kv_heads));
  }
  return layouts;
}

}  // namespace weft::shard
