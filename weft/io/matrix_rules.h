#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/io/matrices/matrix_format.h"
#include "weft/io/shard_info/shard_info.h"
#include "weft/shard/layout.h"

namespace weft::io {

/// Shard functions of attention heads, by shard::HeadSplit::kKv and kEven.
inline constexpr char kHeads[] = "shard_heads";
inline constexpr char kEvenHeads[] = "shard_heads_evenly";
/// The shard function of DimSplit::Kind::kSegments.
inline constexpr char kSegmentRuns[] = "shard_segment_runs";

/// How the weights that share a name ("heads", "ffn") are cut, for any number of ranks. All of them
/// are cut at the same elements.
struct DimSplit {
  enum class Kind {
    /// Balanced, by whole units.
    kEven,
    /// Features of the query heads, by whole heads.
    kQueryHeads,
    /// Features of the kv heads, replicated beyond their number or as `head_split` says.
    kKvHeads,
    /// Of one expert of several: all of it on the rank that holds the expert, nothing elsewhere.
    kExpert,
    /// Each of several segments by itself, all at the same of so many runs.
    kSegments,
  };
  Kind kind = Kind::kEven;
  /// Elements of the whole.
  int64_t size = 0;
  /// kEven: the run that is never cut, and the one to take instead where it would leave a rank with
  /// nothing (0: none).
  int64_t unit = 1;
  int64_t fine_unit = 0;
  /// kQueryHeads, kKvHeads: the heads.
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  shard::HeadSplit head_split = shard::HeadSplit::kKv;
  /// kExpert: how many there are, dealt out evenly in their order, and which one it is.
  int64_t num_experts = 0;
  int64_t expert = 0;
  /// kSegments: their lengths, the number of equal runs of each that are never cut, and the number
  /// to take instead where that would leave a rank with nothing (0: none).
  std::vector<int64_t> segments = {};
  int64_t num_runs = 0;
  int64_t num_fine_runs = 0;

  /// The same; kEven also at multiples of `run` alone, if the whole is one, but where that would
  /// leave a rank with nothing.
  DimSplit at_multiples_of(int64_t run) const;
  /// What each of n ranks holds. Throws ConfigError, beginning with `where`, if one would hold
  /// nothing.
  shard::Layout layout(int64_t n, const std::string& where) const;
  /// The same as a step of shard_info along `dim`, whose indices stand for `per` elements each;
  /// edges are moved outward to multiples of `cover`.
  ShardStep step(int64_t dim, int64_t per, int64_t cover) const;
};

/// How a weight is cut: not at all, by rows (output features), or by columns (input features).
enum class Cut { kWhole, kRows, kColumns };

/// How a file's order of a matrix's rows and columns differs from the model's.
struct MatrixOrder {
  /// Steps that put its rows into the model's order.
  std::vector<ShardStep> rows = {};
  /// Of a matrix that is cut by columns: where the file has them (column_order.h).
  std::vector<shard::Range> columns = {};
};

/// The rules for the parts of a matrix whose model's name is "<base>.weight": each part is cut
/// where the others are, in the model's order; `index` is its place in a stack. Throws ConfigError
/// for another order of rows or columns that are packed together.
std::vector<ParamRule> matrix_rules(const std::string& base, const MatrixFormat& format,
                                    const MatrixOrder& order, Cut cut, const DimSplit* split,
                                    int64_t stack_index);

/// Where some of `num_runs` equal runs of every segment lie, in elements of all of them. Throws
/// ShapeError for a segment that is no multiple of so many.
std::vector<shard::Range> segment_ranges(const std::vector<int64_t>& segments, int64_t num_runs,
                                         const shard::Range& runs);

/// The ranges moved outward to multiples of `cover`: what is read for them.
std::vector<shard::Range> covering(const std::vector<shard::Range>& ranges, int64_t cover);

/// The ranges as places in what covering() has of them.
std::vector<shard::Range> within(const std::vector<shard::Range>& ranges, int64_t cover);

}  // namespace weft::io
