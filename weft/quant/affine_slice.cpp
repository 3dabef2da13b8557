#include <ATen/ATen.h>

#include <numeric>

#include "weft/core/error.h"
#include "weft/quant/affine.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;

constexpr const char* kWhere = "quant.slice_affine";

void check_range(const shard::Range& range, int64_t size, const char* name) {
  check<ShapeError>(range.start >= 0 && range.length > 0 && range.length <= size &&
                        range.start <= size - range.length,
                    kWhere, ": ", name, ", expected a part of 0 to ", size, ", got ", range.length,
                    " from ", range.start, "; check the split");
}

void check_edge(int64_t edge, int64_t bits) {
  check<ShapeError>(edge * bits % 8 == 0, kWhere,
                    ": columns, expected edges between whole bytes, got an edge at column ", edge,
                    " of ", bits, "-bit elements; cut at a multiple of 8 columns");
}

/// One scale for each quant group of `group_size` within `columns`, repeated where a larger group
/// of w holds several.
at::Tensor slice_scales(const at::Tensor& scales, const AffineTensor& w, const shard::Range& rows,
                        const shard::Range& columns, int64_t group_size) {
  const at::Tensor first_columns =
      at::arange(columns.start, columns.end(), group_size, at::TensorOptions(at::kLong));
  const at::Tensor groups = at::floor_divide(first_columns, w.group_size);
  return scales.narrow(0, rows.start, rows.length).index_select(1, groups);
}

}  // namespace

AffineTensor slice_affine(const AffineTensor& w, const shard::Range& rows,
                          const shard::Range& columns) {
  check_affine(w, kWhere);
  check_range(rows, w.out_features(), "rows");
  check_range(columns, w.in_features(), "columns");
  check_edge(columns.start, w.bits);
  check_edge(columns.end(), w.bits);
  const int64_t group_size = std::gcd(w.group_size, std::gcd(columns.start, columns.end()));
  AffineTensor part;
  part.bits = w.bits;
  part.group_size = group_size;
  part.packed = w.packed.narrow(0, rows.start, rows.length)
                    .narrow(1, columns.start * w.bits / 8, columns.length * w.bits / 8)
                    .clone(at::MemoryFormat::Contiguous);
  part.scales = slice_scales(w.scales, w, rows, columns, group_size);
  if (!w.is_symmetric()) {
    part.offsets = slice_scales(w.offsets, w, rows, columns, group_size);
  }
  return part;
}

}  // namespace weft::quant
