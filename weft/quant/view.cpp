#include "weft/quant/view.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "weft/core/error.h"
#include "weft/quant/kernels/select.h"
#include "weft/quant/torch_dtype.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;
using kernels::Weights;

void check_part(const at::Tensor& part, const char* name, const std::string& where) {
  check<ShapeError>(part.defined(), where, ": ", name, ", expected a tensor, got none; set it");
  check<ShapeError>(part.dim() == 2, where, ": ", name, ", expected two dimensions, got shape ",
                    core::list_text(part.sizes()), "; flatten leading dimensions");
  check<ShapeError>(part.is_contiguous() && part.device().is_cpu(), where, ": ", name,
                    ", expected contiguous memory on the CPU, got strides ",
                    core::list_text(part.strides()), " on ", part.device().str(),
                    "; call .cpu().contiguous()");
}

/// Rows of w by number, into `values` [count, in].
void dequantize_rows(const Weights& w, int64_t count, float* values,
                     const std::function<int64_t(int64_t)>& row_of) {
  const auto& kernel = kernels::active_kernel();
  at::parallel_for(0, count, rows_per_thread(w.in_features), [&](int64_t begin, int64_t end) {
    std::vector<std::byte> scratch(static_cast<size_t>(kernels::scratch_bytes(w)));
    for (int64_t i = begin; i < end; ++i) {
      const kernels::Tile tile{values + i * w.in_features, w.in_features, {row_of(i), 1}};
      kernel.dequantize(w, tile, scratch.data());
    }
  });
}

template <class Matrix>
Weights common_view(const Matrix& w, int64_t bits) {
  Weights view;
  view.packed = w.packed.template const_data_ptr<uint8_t>();
  view.scales = w.scales.const_data_ptr();
  view.bits = bits;
  view.group_size = w.group_size;
  view.in_features = w.in_features();
  view.num_groups = view.in_features / w.group_size;
  return view;
}

}  // namespace

Weights view_of(const AffineTensor& w) {
  Weights view = common_view(w, w.bits);
  view.offsets = w.is_symmetric() ? nullptr : w.offsets.const_data_ptr();
  view.scale_type = floating_dtype(w.scales.scalar_type()).value();
  return view;
}

Weights view_of(const MicroscaledTensor& w) {
  Weights view = common_view(w, w.bits());
  view.element = w.mode == Mode::kMxfp8 ? kernels::Element::kE4M3 : kernels::Element::kE2M1;
  view.scale_type = w.mode == Mode::kNvfp4 ? core::Dtype::kF8E4M3 : core::Dtype::kF8E8M0;
  return view;
}

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

MatrixSizes check_packed(const at::Tensor& packed, int64_t bits, int64_t group_size,
                         const std::string& where) {
  check_part(packed, "packed", where);
  check<ShapeError>(packed.scalar_type() == at::kByte, where, ": packed, expected uint8, got ",
                    c10::toString(packed.scalar_type()), "; view it as bytes");
  const MatrixSizes sizes{packed.size(0), packed.size(1) * 8 / bits, group_size};
  check<ShapeError>(packed.numel() > 0 && packed.size(1) * 8 % bits == 0, where,
                    ": packed, expected at least one row of whole ", bits,
                    "-bit elements, got shape ", core::list_text(packed.sizes()),
                    "; check the number of bits");
  check<ShapeError>(group_size > 0 && sizes.in % group_size == 0, where,
                    ": group size, expected a divisor of the ", sizes.in, " columns, got ",
                    group_size, "; check the number of bits and the group size");
  return sizes;
}

void check_groups(const at::Tensor& part, const char* name, const MatrixSizes& sizes,
                  const std::string& where) {
  check_part(part, name, where);
  const int64_t groups = sizes.in / sizes.group_size;
  check<ShapeError>(part.size(0) == sizes.out && part.size(1) == groups, where, ": ", name,
                    ", expected shape [", sizes.out, ", ", groups, "] (quant groups of ",
                    sizes.group_size, " along ", sizes.in, " columns), got ",
                    core::list_text(part.sizes()), "; check the group size");
}

int64_t rows_per_thread(int64_t row_work) {
  constexpr int64_t kWorkPerThread = 65536;
  return std::max<int64_t>(1, kWorkPerThread / std::max<int64_t>(1, row_work));
}

at::Tensor dequantized(const Weights& w, int64_t out) {
  const at::Tensor values = at::empty({out, w.in_features}, at::kFloat);
  dequantize_rows(w, out, values.mutable_data_ptr<float>(), [](int64_t i) { return i; });
  return values;
}

at::Tensor rows_of(const Weights& w, int64_t out, const at::Tensor& indices, const char* where) {
  check<ShapeError>(indices.defined() && indices.scalar_type() == at::kLong, where,
                    ": indices, expected int64, got ",
                    indices.defined() ? c10::toString(indices.scalar_type()) : "none",
                    "; convert them");
  const at::Tensor rows = indices.cpu().contiguous();
  const std::span<const int64_t> numbers(rows.const_data_ptr<int64_t>(),
                                         static_cast<size_t>(rows.numel()));
  for (const int64_t row : numbers) {
    check<ShapeError>(row >= 0 && row < out, where, ": index, expected 0 to ", out - 1, ", got ",
                      row, "; check the vocabulary size");
  }
  auto shape = indices.sizes().vec();
  shape.push_back(w.in_features);
  const at::Tensor values = at::empty(shape, at::kFloat);
  dequantize_rows(w, rows.numel(), values.mutable_data_ptr<float>(),
                  [&](int64_t i) { return numbers[static_cast<size_t>(i)]; });
  return values;
}

}  // namespace weft::quant
