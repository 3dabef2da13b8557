#include "weft/quant/affine.h"

#include <ATen/ATen.h>

#include "weft/core/error.h"
#include "weft/quant/view.h"

namespace weft::quant {

int64_t AffineTensor::num_bytes() const {
  int64_t total = 0;
  for (const at::Tensor* part : {&packed, &scales, &offsets}) {
    if (part->defined()) total += static_cast<int64_t>(part->nbytes());
  }
  return total;
}

void check_affine(const AffineTensor& w, const std::string& where) {
  check_bits(w.bits, where);
  const MatrixSizes sizes = check_packed(w.packed, w.bits, w.group_size, where);
  check_groups(w.scales, "scales", sizes, where);
  check_scale_dtype(w.scales.scalar_type(), where);
  if (w.is_symmetric()) return;
  check_groups(w.offsets, "offsets", sizes, where);
  core::check<core::ShapeError>(w.scales.scalar_type() == w.offsets.scalar_type(), where,
                                ": offsets, expected the dtype of scales, ",
                                c10::toString(w.scales.scalar_type()), ", got ",
                                c10::toString(w.offsets.scalar_type()), "; convert one of them");
}

at::Tensor dequantize(const AffineTensor& w, at::ScalarType dtype) {
  check_affine(w, "quant.dequantize");
  return dequantized(view_of(w), w.out_features()).to(dtype);
}

at::Tensor affine_rows(const AffineTensor& w, const at::Tensor& indices) {
  check_affine(w, "quant.affine_rows");
  return rows_of(view_of(w), w.out_features(), indices, "quant.affine_rows");
}

}  // namespace weft::quant
