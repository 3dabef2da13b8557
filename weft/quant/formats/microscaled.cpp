#include "weft/quant/formats/microscaled.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <array>
#include <vector>

#include "weft/core/error.h"
#include "weft/quant/code_stream.h"
#include "weft/quant/formats/microscaled_reference.h"
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

AffineTensor to_affine(const MicroscaledTensor& w) {
  check_microscaled(w, "quant.to_affine");
  check<ShapeError>(w.bits() == 4, "quant.to_affine: ", mode_info(w.mode).name,
                    ", expected mxfp4 or nvfp4, whose elements are of 4 bits");
  constexpr int64_t kBits = 5;
  // Twice the value of each element, and 16.
  constexpr std::array<uint8_t, 16> kCodes = {16, 17, 18, 19, 20, 22, 24, 28,
                                              16, 15, 14, 13, 12, 10, 8,  4};
  const int64_t out = w.out_features(), in = w.in_features();
  AffineTensor made;
  made.bits = kBits;
  made.group_size = w.group_size;
  made.packed = at::empty({out, in * kBits / 8}, at::kByte);
  made.scales = at::empty(w.scales.sizes(), at::kFloat);
  const auto* packed = w.packed.const_data_ptr<uint8_t>();
  const auto* scales = w.scales.const_data_ptr<uint8_t>();
  auto* const to = made.packed.mutable_data_ptr<uint8_t>();
  auto* const to_scales = made.scales.mutable_data_ptr<float>();
  at::parallel_for(0, out, rows_per_thread(in), [&](int64_t begin, int64_t end) {
    std::vector<uint8_t> codes(static_cast<size_t>(in));
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t i = 0; i < in / 2; ++i) {
        const uint8_t both = packed[row * in / 2 + i];
        codes[static_cast<size_t>(2 * i)] = kCodes[both & 15];
        codes[static_cast<size_t>(2 * i + 1)] = kCodes[both >> 4];
      }
      pack_codes(codes, kBits,
                 {to + row * made.packed.size(1), static_cast<size_t>(made.packed.size(1))});
      for (int64_t i = 0; i < w.scales.size(1); ++i) {
        const int64_t at = row * w.scales.size(1) + i;
        to_scales[at] = 0.5F * reference::scale_value(w.mode, scales[at]);
      }
    }
  });
  return made;
}

at::Tensor microscaled_rows(const MicroscaledTensor& w, const at::Tensor& indices) {
  check_microscaled(w, "quant.microscaled_rows");
  return rows_of(view_of(w), w.out_features(), indices, "quant.microscaled_rows");
}

}  // namespace weft::quant
