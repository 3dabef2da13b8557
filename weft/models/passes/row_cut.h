#pragma once

#include <cstdint>

#include "weft/dist/group.h"

namespace weft::models {

/// The rows of a pass whose residual stream a rank keeps: all, or between products of long prompts
/// its own alone, so that ranks share sums, norms and rounding, too. Source: Korthikanti et al.
/// 2022, arXiv:2205.05198 (sequence parallelism).
struct RowCut {
  /// A multiple of the unit; 0 if there are none.
  int64_t first = 0;
  int64_t count = 0;
  /// Rows that memory is for: `each` for every rank, end to end, of which the last may be of none.
  int64_t room = 0;
  /// 0: every rank keeps all.
  int64_t each = 0;

  bool is_cut() const { return each > 0; }

  /// All rows, or where the ranks of `group` share memory and a row of `width` floats is one of
  /// many, at least `unit` for each, as equal runs of a multiple of `unit` rows as there are. Not
  /// collective, and the same cut on all ranks.
  static RowCut of(int64_t rows, int64_t width, int64_t unit, const dist::Group& group);
};

}  // namespace weft::models
