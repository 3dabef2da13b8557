#pragma once

#include <cstdint>
#include <span>

#include "weft/cuda/kernels/multiply.h"

namespace weft::bench {

/// Another way of cuda::multiply for many rows: a tiling, and the number of bfloat16 parts that a
/// number of x has.
struct TileVariant {
  const char* name;
  void (*multiply)(std::span<const cuda::Product> products, const float* x, int64_t rows);
};
/// Of matrices of bfloat16, and of 4 bits.
std::span<const TileVariant> bfloat16_variants();
std::span<const TileVariant> four_bit_variants();

}  // namespace weft::bench
