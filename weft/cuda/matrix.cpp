#include "weft/cuda/matrix.h"

#include "weft/core/error.h"

namespace weft::cuda {

Matrix::Matrix(const HostMatrix& host) : view_(host.view) {
  core::check<core::ShapeError>(view_.out >= 1 && view_.in >= kUnit && view_.in % kUnit == 0,
                                "cuda.Matrix: [", view_.out, ", ", view_.in,
                                "], expected columns in multiples of ", kUnit,
                                " on each rank; use another number of ranks or --device cpu");
  data_ = Buffer::of(host.data);
  scales_ = Buffer::of(host.scales);
  offsets_ = Buffer::of(host.offsets);
  view_.data = data_.as<const uint8_t>();
  view_.scales = scales_.as<const uint8_t>();
  view_.offsets = offsets_.as<const uint8_t>();
}

}  // namespace weft::cuda
