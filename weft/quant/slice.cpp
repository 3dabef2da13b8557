#include <ATen/ATen.h>

#include <numeric>
#include <vector>

#include "weft/core/error.h"
#include "weft/quant/quantized_matrix.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;

/// "quant.<verb>_affine" or "quant.<verb>_microscaled".
std::string where_text(const char* verb, const QuantizedMatrix& w) {
  return core::join("quant.", verb, w.index() == 0 ? "_affine" : "_microscaled");
}

void check_range(const shard::Range& range, int64_t size, const char* name,
                 const std::string& where) {
  check<ShapeError>(range.start >= 0 && range.length > 0 && range.length <= size &&
                        range.start <= size - range.length,
                    where, ": ", name, ", expected a part of 0 to ", size, ", got ", range.length,
                    " from ", range.start, "; check the split");
}

void check_edge(int64_t edge, int64_t bits, const std::string& where) {
  check<ShapeError>(edge * bits % 8 == 0, where,
                    ": columns, expected edges between whole bytes, got an edge at column ", edge,
                    " of ", bits, "-bit elements; cut at a multiple of 8 columns");
}

/// Changes the number alone: scales must be made to fit.
void set_group_size(QuantizedMatrix& w, int64_t group_size) {
  std::visit([&](auto& matrix) { matrix.group_size = group_size; }, w);
}

/// Calls `change` for scales and, where there are, offsets.
template <class Change>
void for_each_scale(QuantizedMatrix& w, const Change& change) {
  for (const QuantizedPart& part : parts_of(w)) {
    if (part.name != std::string_view("packed")) *part.tensor = change(*part.tensor);
  }
}

at::Tensor regrouped(const at::Tensor& scales, int64_t from, int64_t to, const std::string& where) {
  if (to < from) return scales.repeat_interleave(from / to, 1);
  const at::Tensor runs = scales.unflatten(1, {scales.size(1) * from / to, to / from});
  const at::Tensor first = runs.select(2, 0).contiguous();
  check<ShapeError>(first.unsqueeze(2).expand_as(runs).equal(runs), where,
                    ": neighbouring quant groups of ", from,
                    " differ, expected equal ones to make groups of ", to);
  return first;
}

template <class Matrix>
Matrix of_mode(QuantizedMatrix&& w) {
  return std::get<Matrix>(std::move(w));
}

}  // namespace

QuantizedMatrix slice(const QuantizedMatrix& w, const shard::Range& rows,
                      const shard::Range& columns) {
  const std::string where = where_text("slice", w);
  check_quantized(w, where);
  check_range(rows, out_features(w), "rows", where);
  check_range(columns, in_features(w), "columns", where);
  const int64_t bits = scheme_of(w).bits, former = group_size(w);
  check_edge(columns.start, bits, where);
  check_edge(columns.end(), bits, where);
  // One scale for each quant group within `columns`, repeated where a larger one holds several.
  const int64_t group = std::gcd(former, std::gcd(columns.start, columns.end()));
  const at::Tensor first_columns =
      at::arange(columns.start, columns.end(), group, at::TensorOptions(at::kLong));
  const at::Tensor groups = at::floor_divide(first_columns, former);
  QuantizedMatrix part = w;
  set_group_size(part, group);
  for_each_scale(part, [&](const at::Tensor& scales) {
    return scales.narrow(0, rows.start, rows.length).index_select(1, groups);
  });
  at::Tensor& packed = *parts_of(part).front().tensor;
  packed = packed.narrow(0, rows.start, rows.length)
               .narrow(1, columns.start * bits / 8, columns.length * bits / 8)
               .clone(at::MemoryFormat::Contiguous);
  return part;
}

QuantizedMatrix select(const QuantizedMatrix& w, int64_t dim,
                       std::span<const shard::Range> ranges) {
  check<ShapeError>(!ranges.empty() && (dim == 0 || dim == 1), where_text("select", w),
                    ": expected ranges of dim 0 or 1, got ", ranges.size(), " of dim ", dim);
  const shard::Range all_rows = {0, out_features(w)}, all_columns = {0, in_features(w)};
  std::vector<QuantizedMatrix> parts;
  int64_t group = group_size(w);
  for (const shard::Range& range : ranges) {
    parts.push_back(dim == 0 ? slice(w, range, all_columns) : slice(w, all_rows, range));
    group = std::gcd(group, group_size(parts.back()));
  }
  for (QuantizedMatrix& part : parts) part = regroup(part, group);
  return parts.size() == 1 ? parts[0] : concatenate(parts, dim);
}

QuantizedMatrix regroup(const QuantizedMatrix& w, int64_t new_size) {
  const int64_t former = group_size(w);
  if (new_size == former) return w;
  const std::string where = where_text("regroup", w);
  const bool fits = new_size >= 1 && in_features(w) % new_size == 0 &&
                    (former % new_size == 0 || new_size % former == 0);
  check<ShapeError>(fits, where, ": group size, expected a divisor or a multiple of ", former,
                    " that divides ", in_features(w), ", got ", new_size);
  QuantizedMatrix result = w;
  set_group_size(result, new_size);
  for_each_scale(
      result, [&](const at::Tensor& scales) { return regrouped(scales, former, new_size, where); });
  return result;
}

QuantizedMatrix concatenate(std::span<const QuantizedMatrix> matrices, int64_t dim) {
  constexpr const char* kWhere = "quant.concatenate";
  check<ShapeError>(!matrices.empty(), kWhere, ": expected matrices, got none");
  QuantizedMatrix whole = matrices[0];
  const auto parts = parts_of(whole);
  std::vector<std::vector<at::Tensor>> tensors(parts.size());
  for (QuantizedMatrix matrix : matrices) {
    const auto own = parts_of(matrix);
    check<ShapeError>(scheme_of(matrix) == scheme_of(whole) && own.size() == parts.size(), kWhere,
                      ": expected ", scheme_text(scheme_of(whole)), " throughout, got ",
                      scheme_text(scheme_of(matrix)), " too; quantize them alike");
    for (size_t i = 0; i < own.size(); ++i) tensors[i].push_back(*own[i].tensor);
  }
  for (size_t i = 0; i < parts.size(); ++i) *parts[i].tensor = at::cat(tensors[i], dim);
  return whole;
}

AffineTensor slice_affine(const AffineTensor& w, const shard::Range& rows,
                          const shard::Range& columns) {
  return of_mode<AffineTensor>(slice(w, rows, columns));
}

AffineTensor select_affine(const AffineTensor& w, int64_t dim,
                           std::span<const shard::Range> ranges) {
  return of_mode<AffineTensor>(select(w, dim, ranges));
}

MicroscaledTensor slice_microscaled(const MicroscaledTensor& w, const shard::Range& rows,
                                    const shard::Range& columns) {
  return of_mode<MicroscaledTensor>(slice(w, rows, columns));
}

MicroscaledTensor select_microscaled(const MicroscaledTensor& w, int64_t dim,
                                     std::span<const shard::Range> ranges) {
  return of_mode<MicroscaledTensor>(select(w, dim, ranges));
}

}  // namespace weft::quant
