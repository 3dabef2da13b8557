#pragma once

#include <cstdint>
#include <span>

#include "weft/cuda/kernels/multiply.h"

namespace weft::cuda {

/// multiply() of products of matrices of one form that fit each other, for more than kFewRows; for
/// this folder alone.
void multiply_many_rows(std::span<const Product> products, const float* x, int64_t rows);

}  // namespace weft::cuda
