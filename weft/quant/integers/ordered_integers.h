#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace weft::quant {

/// A matrix [out, in] of integers, whole or a rank's part of one, whose columns belong to quant
/// groups in any order, as GPTQ makes them with act-order ("desc_act"):
/// w[o, i] = scales[o, groups[i]] * (q[o, i] - zeros[o, groups[i]]).
struct OrderedIntegers {
  /// Of a number: 2, 3, 4, 5, 6 or 8.
  int64_t bits = 4;
  /// uint8 [out, in * bits / 8]: numbers that are never negative, a stream along each row, lowest
  /// bits first.
  at::Tensor numbers;
  /// float32 [out, groups].
  at::Tensor scales, zeros;
  /// int32 [in]: the group of each column.
  at::Tensor groups;
};

/// Plain numbers [out, in] of float32, or of `dtype`, rounded once. Throws ShapeError naming the
/// part that doesn't fit, FormatError naming `where` for a group that does not exist, or for
/// numbers that `dtype` can't hold.
at::Tensor plain_numbers(const OrderedIntegers& w, at::ScalarType dtype, const std::string& where);

}  // namespace weft::quant
