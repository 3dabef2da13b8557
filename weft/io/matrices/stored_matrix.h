#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/io/matrices/matrix_format.h"

namespace weft::io {

/// Bits of the words in which files pack small numbers.
inline constexpr int64_t kWordBits = 32;

/// Whether a type is one of those words.
inline bool is_word(Dtype dtype) { return dtype == Dtype::kU32 || dtype == Dtype::kI32; }

/// The last dim but one; 0 where there is none.
inline int64_t rows_of(const TensorMeta& tensor) {
  return tensor.shape.size() < 2 ? 0 : tensor.shape[tensor.shape.size() - 2];
}
/// The last dim; 0 where there is none.
inline int64_t columns_of(const TensorMeta& tensor) {
  return tensor.shape.empty() ? 0 : tensor.shape.back();
}

/// A further part of `format`, whose dims `out_dim` and `in_dim` go along `out` and `in`.
inline MatrixPart& add_part(MatrixFormat& format, const char* suffix, int64_t out_dim,
                            int64_t in_dim) {
  MatrixPart& part = format.parts.emplace_back();
  part.suffix = suffix;
  part.out_dim = out_dim;
  part.in_dim = in_dim;
  return part;
}

/// The tensors of one matrix in a file, for those who find out how it is stored. Keeps references
/// to both.
class StoredMatrix {
 public:
  StoredMatrix(const TensorFile& file, const MatrixRef& matrix) : file_(file), matrix_(matrix) {}

  const TensorFile& file() const { return file_; }
  const MatrixRef& ref() const { return matrix_; }
  int64_t out() const { return matrix_.out; }
  int64_t in() const { return matrix_.in; }

  /// The tensor "<base>.<suffix>", or null.
  const TensorMeta* find(const char* suffix) const {
    return file_.find(core::join(matrix_.base, ".", suffix));
  }
  /// The same, or FormatError.
  const TensorMeta& part(const char* suffix) const {
    return file_.require(core::join(matrix_.base, ".", suffix));
  }

  /// Begins messages about a tensor.
  std::string where(const TensorMeta& tensor) const {
    return core::join(file_.path(), ": tensor ", core::quote(tensor.name), ": ");
  }

  /// Throws FormatError unless the tensor is [rows, columns], or a stack of as many as the
  /// matrix's.
  void check_shape(const TensorMeta& tensor, int64_t rows, int64_t columns) const {
    std::vector<int64_t> expected = {rows, columns};
    if (matrix_.stack > 0) expected.insert(expected.begin(), matrix_.stack);
    core::check<core::FormatError>(
        tensor.shape == expected, where(tensor), "shape ", core::list_text(tensor.shape),
        ", expected ", core::list_text(expected), "; the file and the model's config disagree");
  }

  /// Throws FormatError unless scales are F32, F16 or BF16.
  void check_floating(const TensorMeta& scales) const {
    core::check<core::FormatError>(is_floating(scales.dtype) && scales.dtype != Dtype::kF64,
                                   where(scales), info(scales.dtype).name,
                                   " scales, expected F32, F16 or BF16");
  }

  /// Throws FormatError unless the tensor can say to which quant group each column belongs.
  void check_order(const TensorMeta& order) const {
    core::check<core::FormatError>(
        order.dtype == Dtype::kI32 && order.shape == std::vector<int64_t>{matrix_.in}, where(order),
        info(order.dtype).name, " ", core::list_text(order.shape), ", expected I32 [", matrix_.in,
        "]");
  }

  /// Names the tensors of parts that have none yet: the base and the part's suffix.
  void name_tensors(MatrixFormat& format) const {
    for (MatrixPart& part : format.parts) {
      if (part.tensor.empty()) part.tensor = matrix_.base + part.suffix;
    }
  }

 private:
  const TensorFile& file_;
  const MatrixRef& matrix_;
};

}  // namespace weft::io
