#include <ATen/ATen.h>

#include <numeric>
#include <vector>

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

at::Tensor regrouped(const at::Tensor& scales, int64_t from, int64_t to) {
  if (to < from) return scales.repeat_interleave(from / to, 1);
  const at::Tensor runs = scales.unflatten(1, {scales.size(1) * from / to, to / from});
  const at::Tensor first = runs.select(2, 0).contiguous();
  check<ShapeError>(first.unsqueeze(2).expand_as(runs).equal(runs),
                    "quant.regroup_affine: neighbouring quant groups of ", from,
                    " differ, expected equal ones to make groups of ", to);
  return first;
}

AffineTensor joined(const std::vector<AffineTensor>& parts, int64_t dim) {
  std::vector<at::Tensor> packed, scales, offsets;
  for (const AffineTensor& part : parts) {
    packed.push_back(part.packed);
    scales.push_back(part.scales);
    if (!part.is_symmetric()) offsets.push_back(part.offsets);
  }
  AffineTensor whole;
  whole.bits = parts[0].bits;
  whole.group_size = parts[0].group_size;
  whole.packed = at::cat(packed, dim);
  whole.scales = at::cat(scales, dim);
  if (!offsets.empty()) whole.offsets = at::cat(offsets, dim);
  return whole;
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

AffineTensor select_affine(const AffineTensor& w, int64_t dim,
                           std::span<const shard::Range> ranges) {
  check<ShapeError>(!ranges.empty() && (dim == 0 || dim == 1),
                    "quant.select_affine: expected ranges of dim 0 or 1, got ", ranges.size(),
                    " of dim ", dim);
  const shard::Range all_rows = {0, w.out_features()}, all_columns = {0, w.in_features()};
  std::vector<AffineTensor> parts;
  int64_t group_size = w.group_size;
  for (const shard::Range& range : ranges) {
    parts.push_back(dim == 0 ? slice_affine(w, range, all_columns)
                             : slice_affine(w, all_rows, range));
    group_size = std::gcd(group_size, parts.back().group_size);
  }
  for (AffineTensor& part : parts) part = regroup_affine(part, group_size);
  return parts.size() == 1 ? parts[0] : joined(parts, dim);
}

AffineTensor regroup_affine(const AffineTensor& w, int64_t group_size) {
  if (group_size == w.group_size) return w;
  const bool fits = group_size >= 1 && w.in_features() % group_size == 0 &&
                    (w.group_size % group_size == 0 || group_size % w.group_size == 0);
  check<ShapeError>(fits, "quant.regroup_affine: group size, expected a divisor or a multiple of ",
                    w.group_size, " that divides ", w.in_features(), ", got ", group_size);
  AffineTensor result = w;
  result.group_size = group_size;
  result.scales = regrouped(w.scales, w.group_size, group_size);
  if (!w.is_symmetric()) result.offsets = regrouped(w.offsets, w.group_size, group_size);
  return result;
}

}  // namespace weft::quant
