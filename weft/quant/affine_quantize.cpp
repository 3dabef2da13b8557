#include <ATen/ATen.h>

#include "weft/quant/affine_reference.h"
#include "weft/quant/quantize_groups.h"
#include "weft/quant/view.h"

namespace weft::quant {

AffineTensor quantize_affine(const at::Tensor& w, int64_t bits, int64_t group_size,
                             at::ScalarType scale_dtype) {
  constexpr const char* kWhere = "quant.quantize_affine";
  check_bits(bits, kWhere);
  check_scale_dtype(scale_dtype, kWhere);
  const at::Tensor values = check_quantizable(w, bits, group_size, kWhere);
  AffineTensor result;
  result.bits = bits;
  result.group_size = group_size;
  const auto shape = {w.size(0), w.size(1) / group_size};
  const at::Tensor scales = at::empty(shape, at::kFloat), offsets = at::empty(shape, at::kFloat);
  auto* scale_of = scales.mutable_data_ptr<float>();
  auto* offset_of = offsets.mutable_data_ptr<float>();
  result.packed = pack_groups(values, bits, group_size, [&](int64_t group, auto from, auto codes) {
    const auto [scale, offset] = reference::quantize_group(from, bits, codes);
    scale_of[group] = scale;
    offset_of[group] = offset;
  });
  result.scales = scales.to(scale_dtype);
  result.offsets = offsets.to(scale_dtype);
  const char* remedy = "use float32 or bfloat16 scales";
  check_finite(result.scales, kWhere, "scale", remedy);
  check_finite(result.offsets, kWhere, "offset", remedy);
  return result;
}

}  // namespace weft::quant
