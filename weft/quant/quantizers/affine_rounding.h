#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "weft/quant/affine.h"

/// Affine matrices out of numbers, as folders have them.
namespace weft::quant {

/// Which offsets a quant group may have.
enum class Offsets {
  /// Any that the type of scales has (MLX).
  kAny,
  /// -scale times a whole number, the zero point, which is one of the codes (compressed-tensors
  /// with `symmetric` false).
  kZeroPoints,
  /// -2^(bits-1) * scale, which is not stored (compressed-tensors, symmetric).
  kMiddle,
};

/// How the quant groups of a folder's matrix are stored.
struct AffineForm {
  int64_t bits = 4;
  /// A multiple of 8, at most 128.
  int64_t group_size = 64;
  /// Of scales, and of offsets that are kAny.
  at::ScalarType scale_dtype = at::kFloat;
  Offsets offsets = Offsets::kAny;
};

/// Rounds as the format's own program does, from the least and the largest number of each group:
/// quantize_affine, or what compressed-tensors' observer "minmax" leads to. With zero points
/// scales, whose digits are those of their type, and offsets are float32. Throws ShapeError as
/// quantize_affine does.
AffineTensor round_in_range(const at::Tensor& w, const AffineForm& form);

/// Scales and offsets that are searched so that little is lost of w, whose errors count as
/// quantize_to_blocks has it. On all threads, with the same result on any number of them. Throws
/// ShapeError as quantize_affine and quantize_to_blocks do.
AffineTensor fit_affine(const at::Tensor& w, const AffineForm& form, const at::Tensor& importance);

/// The same by quantize_with_feedback's way. `factor` is feedback_factor's.
AffineTensor fit_affine_with_feedback(const at::Tensor& w, const AffineForm& form,
                                      const at::Tensor& factor);

/// Zero points of a matrix with Offsets::kZeroPoints: uint8 [out, groups].
at::Tensor zero_points(const AffineTensor& w);

}  // namespace weft::quant
