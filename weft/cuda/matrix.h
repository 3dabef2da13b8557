#pragma once

#include <cstdint>
#include <span>

#include "weft/cuda/buffer.h"
#include "weft/cuda/matrix_view.h"

namespace weft::cuda {

/// A matrix of the host in MatrixView's layout: `view` with the sizes, and the bytes of its parts.
struct HostMatrix {
  MatrixView view;
  std::span<const uint8_t> data;
  /// Empty: none.
  std::span<const uint8_t> scales, offsets;
};

/// A matrix on this process's GPU.
class Matrix {
 public:
  /// Throws ShapeError unless rows are whole units of kUnit columns and there is a row.
  explicit Matrix(const HostMatrix& host);
  const MatrixView& view() const { return view_; }
  int64_t num_bytes() const {
    return data_.num_bytes() + scales_.num_bytes() + offsets_.num_bytes();
  }

 private:
  Buffer data_, scales_, offsets_;
  MatrixView view_;
};

}  // namespace weft::cuda
