#pragma once

#include "weft/quant/affine.h"
#include "weft/quant/kernels/kernel.h"

namespace weft::quant {

/// w as the kernels see it; valid while w's tensors live. w must have passed check_affine.
kernels::Weights view_of(const AffineTensor& w);

/// Throws ShapeError naming `where` unless bits is one of 2, 3, 4, 5, 6, 8.
void check_bits(int64_t bits, const std::string& where);

/// Throws ShapeError naming `where` unless `dtype` is float32, float16 or bfloat16.
void check_scale_dtype(at::ScalarType dtype, const std::string& where);

/// How many rows of `row_work` elements one thread should at least have.
int64_t rows_per_thread(int64_t row_work);

}  // namespace weft::quant
