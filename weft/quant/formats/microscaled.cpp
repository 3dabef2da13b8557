#include "weft/quant/formats/microscaled.h"

#include <ATen/ATen.h>

#include "weft/core/error.h"
#include "weft/quant/view.h"

namespace weft::quant {

using core::check;
using core::ShapeError;

int64_t MicroscaledTensor::num_bytes() const {
  return static_cast<int64_t>(packed.nbytes() + scales.nbytes());
}

void check_microscaled(const MicroscaledTensor& w, const std::string& where) {
  const ModeInfo& own = mode_info(w.mode);
  check<ShapeError>(w.mode != Mode::kAffine, where,
                    ": mode, expected mxfp4, mxfp8 or nvfp4, got affine; make an AffineTensor");
  const MatrixSizes sizes = check_packed(w.packed, own.bits, w.group_size, where);
  check<ShapeError>(own.group_size % w.group_size == 0, where,
                    ": group size, expected a divisor of ", own.group_size, ", that of ", own.name,
                    ", got ", w.group_size, "; check the mode");
  check_groups(w.scales, "scales", sizes, where);
  check<ShapeError>(w.scales.scalar_type() == at::kByte, where, ": scales, expected uint8, got ",
                    c10::toString(w.scales.scalar_type()), "; check the mode");
}

at::Tensor dequantize(const MicroscaledTensor& w, at::ScalarType dtype) {
  check_microscaled(w, "quant.dequantize");
  return dequantized(view_of(w), w.out_features()).to(dtype);
}

at::Tensor microscaled_rows(const MicroscaledTensor& w, const at::Tensor& indices) {
  check_microscaled(w, "quant.microscaled_rows");
  return rows_of(view_of(w), w.out_features(), indices, "quant.microscaled_rows");
}

}  // namespace weft::quant
