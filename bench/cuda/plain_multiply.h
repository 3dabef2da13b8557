#pragma once

#include <cstdint>

#include "weft/cuda/kernels/multiply.h"

namespace weft::bench {

/// What cuda::multiply gives for 1, 4 or 8 rows and any number of blocks of 8, in the plainest way:
/// a warp for each row of w that reads x from memory itself. Of bfloat16 or of 4 bits.
void plain_multiply(const cuda::Product& product, const float* x, int64_t rows);

}  // namespace weft::bench
