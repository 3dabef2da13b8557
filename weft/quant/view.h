#pragma once

#include <string>

#include "weft/quant/kernels/kernel.h"
#include "weft/quant/quantized_matrix.h"

/// What the modes share on the way to the kernels.
namespace weft::quant {

/// w as the kernels see it; valid while w's tensors live. w must have passed its check.
kernels::Weights view_of(const AffineTensor& w);
kernels::Weights view_of(const MicroscaledTensor& w);

/// Throws ShapeError naming `where` unless bits is one of 2, 3, 4, 5, 6, 8.
void check_bits(int64_t bits, const std::string& where);

/// Throws ShapeError naming `where` unless `dtype` is float32, float16 or bfloat16.
void check_scale_dtype(at::ScalarType dtype, const std::string& where);

/// Sizes of a matrix in elements.
struct MatrixSizes {
  int64_t out = 0;
  int64_t in = 0;
  int64_t group_size = 0;
};

/// Throws ShapeError naming `where` unless `packed` is uint8 [out, in * bits / 8], contiguous, with
/// at least one row of whole elements, and group_size divides `in`. Returns the sizes.
MatrixSizes check_packed(const at::Tensor& packed, int64_t bits, int64_t group_size,
                         const std::string& where);

/// Throws ShapeError naming `where` and `name` unless `part` is contiguous with one element per
/// quant group.
void check_groups(const at::Tensor& part, const char* name, const MatrixSizes& sizes,
                  const std::string& where);

/// How many rows of `row_work` elements one thread should at least have.
int64_t rows_per_thread(int64_t row_work);

/// All of w, a matrix of `out` rows, in float32.
at::Tensor dequantized(const kernels::Weights& w, int64_t out);

/// Rows of w, a matrix of `out` rows, by `indices`; throws ShapeError naming `where` for others.
at::Tensor rows_of(const kernels::Weights& w, int64_t out, const at::Tensor& indices,
                   const char* where);

}  // namespace weft::quant
