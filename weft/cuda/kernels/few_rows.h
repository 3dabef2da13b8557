#pragma once

#include <cstdint>
#include <span>

#include "weft/cuda/kernels/multiply.h"

namespace weft::cuda {

/// multiply() of products of matrices of one form that fit each other, for a few rows; for this
/// folder alone. A row's sums take the same steps whatever the number of rows is.
void multiply_few_rows(std::span<const Product> products, const float* x, int64_t rows);

}  // namespace weft::cuda
