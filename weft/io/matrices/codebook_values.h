#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/io/matrices/matrix_format.h"
#include "weft/io/views/view.h"

namespace weft::io {

/// Makes plain numbers of a matrix of MatrixKind::kCodebook, of any of its bytes in any order: a
/// code's scale follows from its place in the file, so a cut may fall between any two bytes.
/// Source: bitsandbytes 0.50, `QuantState`.
class CodebookValues {
 public:
  /// Reads the 16 numbers and all scales. Keeps a reference to the file. Throws FormatError naming
  /// the tensor that doesn't fit, IoError.
  CodebookValues(const TensorFile& file, const MatrixFormat& format);

  /// The numbers of `view`, whose bytes are `codes`: float32, with two columns for each of the
  /// view's. Throws ConfigError if the view is not of this matrix alone.
  at::Tensor values(const View& view, std::span<const std::byte> codes) const;

 private:
  const TensorFile& file_;
  const TensorMeta& tensor_;
  /// Codes that share a scale, which may be of several rows.
  int64_t block_ = 0;
  at::Tensor book_;
  at::Tensor scales_;
};

}  // namespace weft::io
