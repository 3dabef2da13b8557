#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "weft/core/error.h"
#include "weft/quant/affine_reference.h"
#include "weft/quant/affine_view.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;

constexpr const char* kWhere = "quant.quantize_affine";

void check_request(const at::Tensor& w, int64_t bits, int64_t group_size) {
  check_bits(bits, kWhere);
  check<ShapeError>(w.defined() && w.dim() == 2 && w.numel() > 0 && w.is_floating_point(), kWhere,
                    ": w, expected a floating matrix [out, in], got ",
                    w.defined() ? core::list_text(w.sizes()) : "none",
                    w.defined() ? core::join(" of ", c10::toString(w.scalar_type())) : "",
                    "; flatten and convert it");
  const int64_t in = w.size(1);
  check<ShapeError>(group_size > 0 && in % group_size == 0, kWhere,
                    ": group size, expected a divisor of the ", in, " columns, got ", group_size,
                    "; use another group size");
  check<ShapeError>(in * bits % 8 == 0, kWhere, ": columns, expected rows of whole bytes, got ", in,
                    " columns of ", bits, " bits; use a multiple of 8 columns or 8 bits");
}

void check_finite(const at::Tensor& values, const char* what, const char* remedy) {
  const at::Tensor wrong = at::isfinite(values).logical_not();
  if (!wrong.any().item<bool>()) return;
  const at::Tensor first = wrong.nonzero()[0];
  check<ShapeError>(false, kWhere, ": ", what, "[", first[0].item<int64_t>(), ", ",
                    first[1].item<int64_t>(), "], expected a finite number, got ",
                    values[first[0].item<int64_t>()][first[1].item<int64_t>()].item<double>(), "; ",
                    remedy);
}

}  // namespace

AffineTensor quantize_affine(const at::Tensor& w, int64_t bits, int64_t group_size,
                             at::ScalarType scale_dtype) {
  check_request(w, bits, group_size);
  check_scale_dtype(scale_dtype, kWhere);
  const at::Tensor values = w.detach().to(at::kCPU, at::kFloat).contiguous();
  check_finite(values, "w", "look for the step that made it");
  const int64_t out = w.size(0);
  const int64_t in = w.size(1);
  const int64_t groups = in / group_size;
  AffineTensor result{bits, group_size, at::empty({out, in * bits / 8}, at::kByte),
                      at::empty({out, groups}, at::kFloat), at::empty({out, groups}, at::kFloat)};
  const float* from = values.const_data_ptr<float>();
  auto* packed = result.packed.mutable_data_ptr<uint8_t>();
  auto* scales = result.scales.mutable_data_ptr<float>();
  auto* offsets = result.offsets.mutable_data_ptr<float>();
  at::parallel_for(0, out, rows_per_thread(in), [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> codes(static_cast<size_t>(in));
    const auto length = static_cast<size_t>(group_size);
    for (int64_t group = begin * groups; group < end * groups; ++group) {
      const int64_t column = group % groups * group_size;
      const auto [scale, offset] = reference::quantize_group(
          {from + group * group_size, length}, bits, std::span(codes).subspan(column, length));
      scales[group] = scale;
      offsets[group] = offset;
      const int64_t row = group / groups;
      if (column + group_size == in) {
        const int64_t row_bytes = in * bits / 8;
        reference::pack(codes, bits, {packed + row * row_bytes, static_cast<size_t>(row_bytes)});
      }
    }
  });
  result.scales = result.scales.to(scale_dtype);
  result.offsets = result.offsets.to(scale_dtype);
  const char* remedy = "use float32 or bfloat16 scales";
  check_finite(result.scales, "scale", remedy);
  check_finite(result.offsets, "offset", remedy);
  return result;
}

}  // namespace weft::quant
