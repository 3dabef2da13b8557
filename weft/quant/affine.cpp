#include "weft/quant/affine.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <vector>

#include "weft/core/error.h"
#include "weft/quant/affine_view.h"
#include "weft/quant/kernels/select.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;

void check_part(const at::Tensor& part, const char* name, const std::string& where) {
  check<ShapeError>(part.defined(), where, ": ", name, ", expected a tensor, got none; set it");
  check<ShapeError>(part.dim() == 2, where, ": ", name, ", expected two dimensions, got shape ",
                    core::list_text(part.sizes()), "; flatten leading dimensions");
  check<ShapeError>(part.is_contiguous() && part.device().is_cpu(), where, ": ", name,
                    ", expected contiguous memory on the CPU, got strides ",
                    core::list_text(part.strides()), " on ", part.device().str(),
                    "; call .cpu().contiguous()");
}

void check_scales(const AffineTensor& w, const at::Tensor& part, const char* name,
                  const std::string& where) {
  check_part(part, name, where);
  check_scale_dtype(part.scalar_type(), where);
  const int64_t groups = w.in_features() / w.group_size;
  check<ShapeError>(part.size(0) == w.out_features() && part.size(1) == groups, where, ": ", name,
                    ", expected shape [", w.out_features(), ", ", groups, "] (quant groups of ",
                    w.group_size, " along ", w.in_features(), " columns), got ",
                    core::list_text(part.sizes()), "; check the group size");
}

/// Rows of w by number, into `values` [count, in].
template <class RowOf>
void dequantize_rows(const AffineTensor& w, int64_t count, float* values, const RowOf& row_of) {
  const auto view = view_of(w);
  const auto& kernel = kernels::active_kernel();
  at::parallel_for(0, count, rows_per_thread(view.in_features), [&](int64_t begin, int64_t end) {
    std::vector<std::byte> scratch(static_cast<size_t>(kernels::scratch_bytes(view)));
    for (int64_t i = begin; i < end; ++i) {
      const kernels::Tile tile{values + i * view.in_features, view.in_features, {row_of(i), 1}};
      kernel.dequantize(view, tile, scratch.data());
    }
  });
}

}  // namespace

void check_bits(int64_t bits, const std::string& where) {
  const bool is_known = bits >= 2 && bits <= 8 && bits != 7;
  check<ShapeError>(is_known, where, ": bits, expected one of 2, 3, 4, 5, 6, 8, got ", bits,
                    "; quantize with another number of bits");
}

void check_scale_dtype(at::ScalarType dtype, const std::string& where) {
  const bool is_known = dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
  check<ShapeError>(is_known, where,
                    ": dtype of scales and offsets, expected float32, float16 or bfloat16, got ",
                    c10::toString(dtype), "; convert them");
}

int64_t rows_per_thread(int64_t row_work) {
  constexpr int64_t kWorkPerThread = 65536;
  return std::max<int64_t>(1, kWorkPerThread / std::max<int64_t>(1, row_work));
}

int64_t AffineTensor::num_bytes() const {
  int64_t total = 0;
  for (const at::Tensor* part : {&packed, &scales, &offsets}) {
    if (part->defined()) total += static_cast<int64_t>(part->nbytes());
  }
  return total;
}

void check_affine(const AffineTensor& w, const std::string& where) {
  check_bits(w.bits, where);
  check_part(w.packed, "packed", where);
  check<ShapeError>(w.packed.scalar_type() == at::kByte, where, ": packed, expected uint8, got ",
                    c10::toString(w.packed.scalar_type()), "; view it as bytes");
  const int64_t row_bytes = w.packed.size(1);
  check<ShapeError>(w.out_features() > 0 && row_bytes > 0 && row_bytes * 8 % w.bits == 0, where,
                    ": packed, expected at least one row of whole ", w.bits,
                    "-bit elements, got shape ", core::list_text(w.packed.sizes()),
                    "; check the number of bits");
  check<ShapeError>(w.group_size > 0 && w.in_features() % w.group_size == 0, where,
                    ": group size, expected a divisor of the ", w.in_features(), " columns, got ",
                    w.group_size, "; check the number of bits and the group size");
  check_scales(w, w.scales, "scales", where);
  if (w.is_symmetric()) return;
  check_scales(w, w.offsets, "offsets", where);
  check<ShapeError>(w.scales.scalar_type() == w.offsets.scalar_type(), where,
                    ": offsets, expected the dtype of scales, ",
                    c10::toString(w.scales.scalar_type()), ", got ",
                    c10::toString(w.offsets.scalar_type()), "; convert one of them");
}

kernels::Weights view_of(const AffineTensor& w) {
  kernels::Weights view;
  view.packed = w.packed.const_data_ptr<uint8_t>();
  view.scales = w.scales.const_data_ptr();
  view.offsets = w.is_symmetric() ? nullptr : w.offsets.const_data_ptr();
  const auto dtype = w.scales.scalar_type();
  view.scale_type = dtype == at::kFloat  ? kernels::ScaleType::kFloat32
                    : dtype == at::kHalf ? kernels::ScaleType::kFloat16
                                         : kernels::ScaleType::kBFloat16;
  view.bits = w.bits;
  view.group_size = w.group_size;
  view.in_features = w.in_features();
  view.num_groups = view.in_features / w.group_size;
  return view;
}

at::Tensor dequantize(const AffineTensor& w, at::ScalarType dtype) {
  check_affine(w, "quant.dequantize");
  const at::Tensor values = at::empty({w.out_features(), w.in_features()}, at::kFloat);
  dequantize_rows(w, w.out_features(), values.mutable_data_ptr<float>(),
                  [](int64_t i) { return i; });
  return values.to(dtype);
}

at::Tensor affine_rows(const AffineTensor& w, const at::Tensor& indices) {
  const char* where = "quant.affine_rows";
  check_affine(w, where);
  check<ShapeError>(indices.defined() && indices.scalar_type() == at::kLong, where,
                    ": indices, expected int64, got ",
                    indices.defined() ? c10::toString(indices.scalar_type()) : "none",
                    "; convert them");
  const at::Tensor rows = indices.cpu().contiguous();
  const std::span<const int64_t> numbers(rows.const_data_ptr<int64_t>(),
                                         static_cast<size_t>(rows.numel()));
  for (const int64_t row : numbers) {
    check<ShapeError>(row >= 0 && row < w.out_features(), where, ": index, expected 0 to ",
                      w.out_features() - 1, ", got ", row, "; check the vocabulary size");
  }
  auto shape = indices.sizes().vec();
  shape.push_back(w.in_features());
  const at::Tensor values = at::empty(shape, at::kFloat);
  dequantize_rows(w, rows.numel(), values.mutable_data_ptr<float>(),
                  [&](int64_t i) { return numbers[static_cast<size_t>(i)]; });
  return values;
}

}  // namespace weft::quant
