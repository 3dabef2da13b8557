#pragma once

#include <cstdint>

#include "weft/quant/affine.h"
#include "weft/quant/integers/ordered_integers.h"

namespace weft::quant {

/// A matrix [out, in] as compressed-tensors' files keep it, whole or a rank's part of one:
/// w = scale * (q - zero).
struct ScaledIntegers {
  /// Of a number: 2, 3, 4, 5, 6 or 8.
  int64_t bits = 8;
  /// "pack-quantized": uint8 [out, in * bits / 8], numbers plus 2^(bits-1) as a stream along each
  /// row, lowest bits first. "int-quantized": int8 [out, in].
  at::Tensor numbers;
  /// Floating [out, groups], or [out, 1]: one for each row.
  at::Tensor scales;
  /// Zero points plus 2^(bits-1). int32 [out * bits / 32, as scales]: as a stream down each column,
  /// lowest bits first. uint8, as scales: one by one. Undefined: all are 0.
  at::Tensor zeros;
};

/// The same as affine, without loss, in quant groups of `group_size`: that of the scales, or any
/// divisor of `in` where each row has one. Without zeros the result keeps no offsets and the dtype
/// of scales. Throws ShapeError naming the part that doesn't fit.
/// Source: the PyPI package compressed-tensors, compressors pack_quantized and naive_quantized.
AffineTensor from_scaled_integers(const ScaledIntegers& stored, int64_t group_size);

/// The same of packed numbers with act-order, whose columns belong to quant groups in any order:
/// scales and zeros are those of all groups. `groups` of the result is the caller's to set.
OrderedIntegers ordered_integers(const ScaledIntegers& stored);

}  // namespace weft::quant
