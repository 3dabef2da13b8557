#pragma once

#include <ATen/core/Tensor.h>

#include "weft/core/dtype.h"

/// Rounding by columns, where later ones make good what earlier ones lost. Source: Frantar et al.
/// 2022, "GPTQ", arXiv:2210.17323.
namespace weft::quant {

/// What feedback needs of the inputs of a matrix: the upper Cholesky factor of the inverse of their
/// mean products [in, in], float32. `damping` times the mean square is added to each input's own,
/// so that inputs that always go together can be told apart. Sums depend on the number of threads.
/// Throws ShapeError unless the products are a square of finite floating numbers and positive
/// semidefinite.
at::Tensor feedback_factor(const at::Tensor& products, double damping);

/// The factor in float32, contiguous. Throws ShapeError naming `where` unless it is [in, in].
at::Tensor check_factor(const at::Tensor& factor, int64_t in, const char* where);

/// As quantize_to_blocks, but each column's error is taken off the columns that come after it, as
/// far as their inputs say the same: the square of the error of x w^T becomes small, where the
/// other makes the error of w itself small. `factor` as feedback_factor gives it for the columns.
/// Scales are chosen from the corrected numbers, a group when its columns come.
at::Tensor quantize_with_feedback(core::Dtype dtype, const at::Tensor& w, const at::Tensor& factor);

}  // namespace weft::quant
