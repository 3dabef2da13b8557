#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "weft/quant/affine.h"
#include "weft/quant/formats/microscaled.h"
#include "weft/quant/scheme.h"

namespace weft::quant {

/// A quantized matrix [out, in] of any mode. The functions do what those of the mode do: see
/// affine.h.
using QuantizedMatrix = std::variant<AffineTensor, MicroscaledTensor>;

/// One of the tensors that a quantized matrix is made of.
struct QuantizedPart {
  /// "packed", "scales" or "offsets".
  const char* name;
  at::Tensor* tensor;
};

/// The tensors of w: packed, scales and, where there are, offsets. Each has a row for every row of
/// the matrix, and columns in proportion.
std::vector<QuantizedPart> parts_of(QuantizedMatrix& w);

/// Throws ShapeError naming `where` unless the parts fit each other.
void check_quantized(const QuantizedMatrix& w, const std::string& where);

/// Rows of the matrix.
int64_t out_features(const QuantizedMatrix& w);
/// Columns of the matrix.
int64_t in_features(const QuantizedMatrix& w);
/// Neighbouring columns that share a scale.
int64_t group_size(const QuantizedMatrix& w);
/// Bytes of all parts.
int64_t num_bytes(const QuantizedMatrix& w);
/// How w is kept.
Scheme scheme_of(const QuantizedMatrix& w);

/// Quantizes w [out, in] (floating). Throws ConfigError for a scheme that does not exist, and
/// ShapeError as quantize_affine and quantize_microscaled do.
QuantizedMatrix quantize(const at::Tensor& w, const Scheme& scheme);

/// The matrix in `dtype`, computed in float32 and rounded once.
at::Tensor dequantize(const QuantizedMatrix& w, at::ScalarType dtype);

/// Rows and columns, bit for bit, in memory of its own; quant groups that are cut become smaller.
QuantizedMatrix slice(const QuantizedMatrix& w, const shard::Range& rows,
                      const shard::Range& columns);

/// The rows (dim 0) or columns (dim 1) in `ranges`, one range after another, bit for bit.
QuantizedMatrix select(const QuantizedMatrix& w, int64_t dim, std::span<const shard::Range> ranges);

/// The same values with another group size: scales and offsets repeated for a divisor of the
/// present one, or thinned out for a multiple. Throws ShapeError if neither, or if quant groups
/// that would become one differ.
QuantizedMatrix regroup(const QuantizedMatrix& w, int64_t group_size);

/// Matrices of one scheme end to end along `dim`. Throws ShapeError if there are none or their
/// schemes differ.
QuantizedMatrix concatenate(std::span<const QuantizedMatrix> parts, int64_t dim);

/// y = x w^T, summed in float32. x: [..., in], floating. Records no gradient.
at::Tensor matmul(const at::Tensor& x, const QuantizedMatrix& w);

/// Rows of w by `indices` (int64, any shape): [..., in] float32.
at::Tensor rows(const QuantizedMatrix& w, const at::Tensor& indices);

}  // namespace weft::quant
