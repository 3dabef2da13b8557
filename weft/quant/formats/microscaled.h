#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>

#include "weft/quant/affine.h"
#include "weft/quant/scheme.h"
#include "weft/shard/split.h"

namespace weft::quant {

/// A matrix w [out, in] kept as floats of 4 or 8 bits with one 8-bit scale per quant group of
/// neighbours along `in`: w = scale * element, in float32.
///   mxfp4: E2M1 elements, E8M0 scales (powers of two), groups of 32
///   mxfp8: E4M3 elements, E8M0 scales, groups of 32
///   nvfp4: E2M1 elements, E4M3 scales, groups of 16
/// `packed` is uint8 [out, in * bits / 8]: element k of a row in bits [k * bits, (k + 1) * bits),
/// lowest first. `scales` is uint8 [out, in / group_size]. MLX's files are this layout.
/// Source: OCP Microscaling Formats (MX) Specification v1.0; NVFP4 by NVIDIA, here without a scale
/// of the whole matrix.
struct MicroscaledTensor {
  /// Not kAffine.
  Mode mode = Mode::kMxfp4;
  /// The mode's own, or a divisor of it where a part cuts quant groups.
  int64_t group_size = 0;
  at::Tensor packed;
  at::Tensor scales;

  int64_t bits() const { return mode_info(mode).bits; }
  int64_t out_features() const { return packed.size(0); }
  int64_t in_features() const { return packed.size(1) * 8 / bits(); }
  /// Bytes of all parts.
  int64_t num_bytes() const;
};

/// Throws ShapeError naming `where` unless the parts fit each other and the mode: dtypes, shapes,
/// contiguous, group size dividing the mode's own and `in`.
void check_microscaled(const MicroscaledTensor& w, const std::string& where);

/// Quantizes w [out, in] (floating, computed in float32) per group, to the bits that MLX's CPU
/// backend gives. Throws ShapeError unless w is finite and groups divide `in`.
MicroscaledTensor quantize_microscaled(const at::Tensor& w, Mode mode);

/// The matrix [out, in] in `dtype`, computed in float32 and rounded once.
at::Tensor dequantize(const MicroscaledTensor& w, at::ScalarType dtype);

/// The same numbers as integers of 5 bits with float32 scales, for kernels that have those;
/// lossless (a zero may have another sign). Throws ShapeError for elements of 8 bits.
AffineTensor to_affine(const MicroscaledTensor& w);

/// As slice_affine: rows and columns, bit for bit, in memory of its own.
MicroscaledTensor slice_microscaled(const MicroscaledTensor& w, const shard::Range& rows,
                                    const shard::Range& columns);

/// As select_affine: the rows (dim 0) or columns (dim 1) in `ranges`, one range after another.
MicroscaledTensor select_microscaled(const MicroscaledTensor& w, int64_t dim,
                                     std::span<const shard::Range> ranges);

/// As affine_matmul: y = x w^T, summed in float32, on the fastest kernel of this machine.
at::Tensor microscaled_matmul(const at::Tensor& x, const MicroscaledTensor& w);

/// As affine_rows: rows of w by `indices` (int64, any shape), [..., in] float32.
at::Tensor microscaled_rows(const MicroscaledTensor& w, const at::Tensor& indices);

}  // namespace weft::quant
