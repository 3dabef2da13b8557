#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>

#include "weft/shard/split.h"

namespace weft::quant {

/// A matrix w [out, in] kept as small integers: w = scale * q + offset, with one scale and offset
/// per quant group of `group_size` neighbours along `in`.
/// `packed` is uint8 [out, in * bits / 8]: each row is one little-endian bit stream, element k in
/// bits [k * bits, (k + 1) * bits), lowest bit first (MLX's layout, all of 2, 3, 4, 5, 6, 8 bits).
/// `scales` and `offsets` are [out, in / group_size], float32, float16 or bfloat16. Undefined
/// offsets mean symmetric: offset = -2^(bits-1) * scale.
/// The value is scale * q + offset in float32.
struct AffineTensor {
  int64_t bits = 0;
  int64_t group_size = 0;
  at::Tensor packed;
  at::Tensor scales;
  at::Tensor offsets;

  int64_t out_features() const { return packed.size(0); }
  int64_t in_features() const { return packed.size(1) * 8 / bits; }
  bool is_symmetric() const { return !offsets.defined(); }
  /// Bytes of all parts.
  int64_t num_bytes() const;
};

/// Throws ShapeError naming `where` unless the parts fit each other: dtypes, shapes, contiguous,
/// bits one of 2, 3, 4, 5, 6, 8, group size positive and dividing `in`, rows of whole bytes.
void check_affine(const AffineTensor& w, const std::string& where);

/// Quantizes w [out, in] (floating) per group, with MLX's rule: fp32 arithmetic, round half to
/// even, the edge of larger magnitude exact. Scales and offsets get `scale_dtype`.
/// Throws ShapeError as check_affine does.
AffineTensor quantize_affine(const at::Tensor& w, int64_t bits, int64_t group_size,
                             at::ScalarType scale_dtype);

/// The matrix [out, in] in `dtype`, computed in float32 and rounded once.
at::Tensor dequantize(const AffineTensor& w, at::ScalarType dtype);

/// Rows `rows` (of out) and columns `columns` (of in), bit for bit; owns its memory. Where a column
/// edge cuts a quant group, scales and offsets are repeated and the group size divided: lossless.
/// Throws ShapeError if an edge cuts a byte-aligned run of 8 elements (unless bits is 8 or the edge
/// is on a byte).
AffineTensor slice_affine(const AffineTensor& w, const shard::Range& rows,
                          const shard::Range& columns);

/// The rows (dim 0) or columns (dim 1) in `ranges`, one range after another, bit for bit; owns its
/// memory. For columns all ranges get one group size, the largest that no edge cuts.
/// Throws ShapeError as slice_affine does.
AffineTensor select_affine(const AffineTensor& w, int64_t dim,
                           std::span<const shard::Range> ranges);

/// y = x w^T. x: [..., in], float32 or bfloat16 or float16, any strides. Returns [..., out] in x's
/// dtype, summed in float32. Does not record gradients. Runs on the fastest kernel of this machine.
/// Throws ShapeError if x's last dim is not `in`.
at::Tensor affine_matmul(const at::Tensor& x, const AffineTensor& w);

/// Rows of w by `indices` (int64, any shape): [..., in] float32. For embeddings.
at::Tensor affine_rows(const AffineTensor& w, const at::Tensor& indices);

}  // namespace weft::quant
