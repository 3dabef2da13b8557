#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::shard {

/// `length` elements from `start` along one dimension.
struct Range {
  int64_t start = 0;
  int64_t length = 0;

  int64_t end() const { return start + length; }
  bool operator==(const Range&) const = default;
};

/// The rule that cuts a whole into shards along `dim`.
struct Split {
  int64_t dim = 0;
  /// Lengths of the parts of a fused tensor, each cut by itself (q, k, v of a qkv); empty: one
  /// part.
  std::vector<int64_t> segments;
  /// The run along `dim` that is never cut, in elements.
  int64_t unit = 1;
};

/// Which of `units` rank `rank` of `n` holds. Balanced: the first `units mod n` ranks hold one
/// more. Throws ConfigError if n < 1, rank is outside, or some rank would hold nothing (units < n).
Range part(int64_t units, int64_t n, int64_t rank);

/// The ranges along `split.dim` (of `size` elements) that `rank` of `n` holds: one per segment, in
/// order. Throws ShapeError if segments don't sum to `size` or a unit doesn't divide its segment,
/// ConfigError as `part` does. `name` begins the message.
std::vector<Range> slices(const Split& split, int64_t size, int64_t n, int64_t rank,
                          const std::string& name);

/// Sum of the lengths.
int64_t total_length(const std::vector<Range>& ranges);

/// Tensors that are cut together name the same one. `size` counts elements of the named dimension
/// (heads, ffn columns, vocabulary rows), `unit` the run that is never cut.
struct NamedSplit {
  std::string name;
  int64_t size = 0;
  int64_t unit = 1;

  /// This rank's range in elements. Throws ShapeError if unit does not divide size, ConfigError if
  /// a rank would hold nothing; the message lists the largest n that works.
  Range range(int64_t n, int64_t rank) const;
  /// The most ranks that this can be cut for.
  int64_t max_ranks() const { return unit > 0 ? size / unit : 0; }
};

}  // namespace weft::shard
