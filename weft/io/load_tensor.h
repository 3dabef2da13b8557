#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "weft/io/tensor_file.h"
#include "weft/quant/affine.h"
#include "weft/shard/split.h"

namespace weft::io {

/// A matrix as a file stores it: the name of its tensor and the logical whole shape [out, in] that
/// the model expects. For packed formats the tensor's own shape differs from [out, in].
struct MatrixRef {
  std::string name;
  int64_t out = 0;
  int64_t in = 0;
};

/// Rows (in this order, so single rows reorder) and columns of the whole that a rank holds.
struct MatrixSlice {
  std::vector<shard::Range> rows;
  shard::Range columns;
};

/// How a file keeps a matrix.
enum class MatrixKind { kDense, kGgufBlocks, kAffine };

/// What matrix_format found.
struct MatrixFormat {
  MatrixKind kind = MatrixKind::kDense;
  /// Columns that are stored together: 1, a GGUF block, or a quant group.
  int64_t column_unit = 1;
  /// Affine only.
  int64_t bits = 0;
  /// For people: "F32", "Q4_1", "affine 4-bit g64".
  std::string text;
};

/// Finds out how `matrix` is stored and checks the stored shapes against the expected ones: dense
/// [out, in]; GGUF blocks along `in`; or MLX's affine parts <base>.weight (U32), <base>.scales,
/// <base>.biases, with bits and group size inferred from the shapes.
/// Throws FormatError naming the file and the tensor.
MatrixFormat matrix_format(const TensorFile& file, const MatrixRef& matrix);

/// Names of all tensors that make up the matrix in the file.
std::vector<std::string> matrix_parts(const TensorFile& file, const MatrixRef& matrix);

/// Bytes of the file that hold the slice, scales and offsets included.
uint64_t slice_bytes(const TensorFile& file, const MatrixRef& matrix, const MatrixSlice& slice);

/// A slice in memory: floating [rows, columns], or quantized and kept so.
using LoadedMatrix = std::variant<at::Tensor, quant::AffineTensor>;

/// Reads one slice; nothing outside it but what shares a quant group or block with it. Dense
/// matrices are converted to `dense_dtype`. Throws FormatError, IoError, ShapeError (column edges
/// that cut a run of 8 packed elements).
LoadedMatrix load_matrix(const TensorFile& file, const MatrixRef& matrix, const MatrixSlice& slice,
                         at::ScalarType dense_dtype, ReadStats* stats = nullptr);

/// Reads elements `range` of the 1-d tensor `name` of `size` elements, converted to `dtype`.
at::Tensor load_vector(const TensorFile& file, const std::string& name, int64_t size,
                       const shard::Range& range, at::ScalarType dtype, ReadStats* stats = nullptr);

}  // namespace weft::io
