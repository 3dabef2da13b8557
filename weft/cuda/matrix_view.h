#pragma once

#include <cstdint>

#include "weft/core/dtype.h"

namespace weft::cuda {

using core::Dtype;

/// Columns that one thread takes at a time. This many codes are whole bytes, whatever their number
/// of bits.
inline constexpr int32_t kUnit = 8;

/// A matrix w [out, in] as kernels see it: rows end to end, plain numbers or, with `bits`, codes
/// with w = scale * q + offset per quant group (quant::AffineTensor's layout). `in` and the group
/// size are multiples of kUnit; data begins at a multiple of 32 bytes.
struct MatrixView {
  const uint8_t* data = nullptr;
  /// [out, in / group_size] of `scale_numbers`; null: plain numbers.
  const void* scales = nullptr;
  /// The same for offsets; null: offset = -2^(bits-1) * scale.
  const void* offsets = nullptr;
  int32_t out = 0;
  int32_t in = 0;
  /// 2, 3, 4, 5, 6 or 8; 0: plain numbers, as `numbers` says.
  int32_t bits = 0;
  /// Of a quant group.
  int32_t units_per_group = 1;
  /// F32, F16 or BF16, both.
  Dtype numbers = Dtype::kF32;
  Dtype scale_numbers = Dtype::kF32;
};

}  // namespace weft::cuda
