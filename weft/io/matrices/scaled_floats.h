#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/io/matrices/matrix_format.h"
#include "weft/io/matrices/stretches.h"
#include "weft/io/views/view.h"

namespace weft::io {

/// Makes plain numbers of a matrix of MatrixKind::kScaledFloats, of any of its elements in any
/// order: an element's scale follows from its place in the file, so a cut may fall anywhere.
class ScaledFloats {
 public:
  /// Reads the scales, all of them: of blocks of 128 x 128 in float32 they are a 4,096th of the
  /// matrix. Keeps a reference to the file. Throws FormatError (it has no such tensor, or nothing
  /// says how many rows and columns share a scale), IoError.
  ScaledFloats(const TensorFile& file, const MatrixFormat& format);

  /// The elements of `view`, whose bytes are `codes`, times their scales: float32 of the view's
  /// shape. Throws ConfigError if the view is not of this matrix alone.
  at::Tensor values(const View& view, std::span<const std::byte> codes) const;

 private:
  void write(const Stretch& stretch, std::span<const uint8_t> codes, float* to) const;

  const TensorFile& file_;
  const TensorMeta& tensor_;
  ScaleGrid grid_;
  /// Of the matrix in the file.
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  at::Tensor scales_;
};

}  // namespace weft::io
