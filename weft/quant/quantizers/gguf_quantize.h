#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "weft/core/dtype.h"

namespace weft::quant {

/// The block types that weft can make of numbers.
std::vector<core::Dtype> quantizable_block_types();

/// The blocks of a matrix [out, in], floating, whose rows are whole blocks of `dtype`: uint8 [out,
/// bytes of a row]. `importance`, float32 [in] or undefined, says what the square of an error in
/// each column counts, as the mean square of that column's inputs does. The square of an element's
/// error counts importance * sqrt(mean square of its row + its own square), so that large weights
/// keep more of their value. On all threads, with the same result on any number of them. Throws
/// InternalError for a type that is none of quantizable_block_types(), ShapeError for other shapes,
/// numbers that are not finite, importances below 0, and scales that float16 can't hold.
at::Tensor quantize_to_blocks(core::Dtype dtype, const at::Tensor& w, const at::Tensor& importance);

/// Throws ShapeError naming `where` for an importance that quantize_to_blocks doesn't take.
void check_importance(const at::Tensor& importance, int64_t in, const char* where);

/// The elements' weights in that error: float32 [out, in].
at::Tensor error_weights(const at::Tensor& w, const at::Tensor& importance);

}  // namespace weft::quant
