#include "weft/models/passes/row_cut.h"

#include <algorithm>

namespace weft::models {
namespace {

// Smaller sums go through memory that all ranks read (dist::SharedSum), in one step instead of two.
constexpr int64_t kSmallSum = (96 << 10) / sizeof(float);

}  // namespace

RowCut RowCut::of(int64_t rows, int64_t width, int64_t unit, const dist::Group& group) {
  const int64_t n = group.size();
  const bool has_enough = rows * width > kSmallSum && rows >= unit * n;
  if (n == 1 || !has_enough || !group.shares_memory()) return {0, rows, rows, 0};
  const int64_t each = ((rows + n - 1) / n + unit - 1) / unit * unit;
  const int64_t first = each * group.rank();
  if (first >= rows) return {0, 0, each * n, each};
  return {first, std::min(rows - first, each), each * n, each};
}

}  // namespace weft::models
