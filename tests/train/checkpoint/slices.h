#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/shard/layout.h"
#include "weft/train/slice_runs.h"

namespace weft::train::testing {

/// The places in the whole of a slice's elements, one by one: by the definition of a cut, without
/// the arithmetic of runs.
inline std::vector<int64_t> places_in_whole(const Slice& slice) {
  std::vector<int64_t> shard;
  int64_t inner = 1;
  for (size_t dim = slice.sizes.size();
       slice.cut && dim-- > static_cast<size_t>(slice.cut->dim) + 1;)
    inner *= slice.sizes[dim];
  const int64_t all = count_elements(slice.sizes, "test");
  if (!slice.cut) {
    for (int64_t i = 0; i < all; ++i) shard.push_back(i);
  } else {
    const int64_t size = slice.cut->size;
    for (int64_t outer = 0; outer * size * inner < all; ++outer) {
      for (const auto& range : slice.cut->of(slice.model_rank)) {
        for (int64_t i = range.start; i < range.end(); ++i) {
          for (int64_t k = 0; k < inner; ++k) shard.push_back((outer * size + i) * inner + k);
        }
      }
    }
  }
  const auto begin = shard.begin() + slice.elements.start;
  return {begin, begin + slice.elements.length};
}

/// A whole and one way to cut it over the model axis.
struct CutWhole {
  std::vector<int64_t> sizes;
  std::optional<shard::Layout> cut;

  /// The whole shard of a rank of the model axis.
  Slice shard(int64_t model_rank) const {
    Slice slice{"w", sizes, cut, model_rank, {}};
    slice.elements.length = shard_elements(slice);
    return slice;
  }
  int64_t num_ranks() const { return cut ? cut->num_ranks() : 1; }
};

/// Every way that layers cut matrices and vectors, with sizes that divide nothing.
inline std::vector<CutWhole> cut_wholes() {
  using shard::Split;
  std::vector<CutWhole> wholes = {{{7}, {}}, {{7, 5}, {}}, {{3, 5, 4}, {}}, {{}, {}}};
  const std::vector<std::pair<std::vector<int64_t>, Split>> splits = {
      {{7}, {0, {}, 1}},         {{7, 5}, {0, {}, 1}},      {{7, 5}, {1, {}, 1}},
      {{14, 3}, {0, {6, 8}, 2}}, {{3, 14}, {1, {6, 8}, 2}}, {{3, 5, 4}, {1, {}, 1}}};
  for (const auto& [sizes, split] : splits) {
    for (int64_t n = 2; n <= 3; ++n) {
      const int64_t size = sizes[static_cast<size_t>(split.dim)];
      wholes.push_back({sizes, shard::make_layout(split, size, n, "test")});
    }
  }
  // Key heads that two ranks share.
  wholes.push_back({{6, 5}, shard::head_layouts(6, 3, 2, 4).kv});
  return wholes;
}

/// All parts, of `step` elements, of all shards.
inline std::vector<Slice> all_slices(const CutWhole& whole, int64_t step) {
  std::vector<Slice> slices;
  for (int64_t rank = 0; rank < whole.num_ranks(); ++rank) {
    const Slice shard = whole.shard(rank);
    for (int64_t start = 0; start < shard.elements.length; start += step) {
      Slice part = shard;
      part.elements = {start, std::min(step, shard.elements.length - start)};
      slices.push_back(part);
    }
  }
  return slices;
}

}  // namespace weft::train::testing
