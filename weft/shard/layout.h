#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/shard/heads.h"
#include "weft/shard/split.h"

namespace weft::shard {

/// What each of n ranks holds along one dim of a whole: a Split that was worked out for all ranks.
/// A rank's shard is its ranges one after another.
struct Layout {
  int64_t dim = 0;
  /// Elements of the whole along `dim`.
  int64_t size = 0;
  /// By rank. Ranges of different ranks may overlap: those elements are replicated, and the
  /// gradients of their copies belong together.
  std::vector<std::vector<Range>> ranges;

  int64_t num_ranks() const { return static_cast<int64_t>(ranges.size()); }
  const std::vector<Range>& of(int64_t rank) const { return ranges[static_cast<size_t>(rank)]; }
  /// Elements that each rank holds.
  std::vector<int64_t> lengths() const;
  /// True if some element is held by several ranks.
  bool overlaps() const;
  /// Ranges within the shards laid end to end in rank order which, one after another, are the
  /// whole. Of a replicated element the first rank's copy is taken.
  std::vector<Range> gather_ranges() const;
  /// Greatest common divisor of `start` and all edges of all ranges: where a run of that length is
  /// never cut.
  int64_t common_run(int64_t start) const;
};

/// The layout of `size` elements over n ranks. Throws as `slices` does; `name` begins the message.
Layout make_layout(const Split& split, int64_t size, int64_t n, const std::string& name);

/// Shards that lie end to end in rank order, with the lengths given.
Layout contiguous_layout(int64_t dim, const std::vector<int64_t>& lengths);

/// Throws ShapeError, beginning with `name`, unless every element is held by some rank and every
/// range lies within the whole.
void check_layout(const Layout& layout, const std::string& name);

/// Layouts of the output features of query and of key/value projections, cut by heads of `head_dim`
/// features as `shard_heads` does. Where kv heads are replicated `kv` overlaps.
struct HeadLayouts {
  Layout query;
  Layout kv;
};

/// Throws as shard_heads.
HeadLayouts head_layouts(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim, int64_t n,
                         HeadSplit split = HeadSplit::kKv);

}  // namespace weft::shard
