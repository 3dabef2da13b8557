#pragma once

#include <cstdint>
#include <span>

#include "weft/cuda/matrix_view.h"

namespace weft::cuda {

/// Rows of activations that are multiplied as one alone would be, bit for bit.
inline constexpr int64_t kFewRows = 16;
/// The most products of one call.
inline constexpr int64_t kMostProducts = 3;

/// y = x w^T: y [rows, w.out].
struct Product {
  MatrixView w;
  float* y = nullptr;
};

/// All products of `rows` rows x [rows, in], all in the GPU's memory, x at a multiple of 32 bytes;
/// summed in float32. Few rows read each weight once from memory, a warp for four rows of w; more
/// go through tiles. Throws ShapeError unless there are 1 to kMostProducts of one `in`.
void multiply(std::span<const Product> products, const float* x, int64_t rows);

/// Rows of w by `indices` [count] to y [count, w.in], zeros for those that w does not have; all in
/// the GPU's memory.
void read_rows(const MatrixView& w, const int64_t* indices, int64_t count, float* y);

}  // namespace weft::cuda
