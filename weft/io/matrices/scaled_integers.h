#pragma once

#include "weft/io/matrices/matrix_format.h"
#include "weft/io/matrices/stored_matrix.h"

namespace weft::io {

/// Whether the matrix is stored as compressed-tensors stores integers
/// (MatrixKind::kScaledIntegers): <base>.weight_packed, or <base>.weight of int8.
bool has_scaled_integers(const StoredMatrix& matrix);

/// Its parts and units, checked: numbers, <base>.weight_scale, and <base>.weight_zero_point and
/// <base>.weight_g_idx if it has them; with the latter it is MatrixKind::kOrderedIntegers. Throws
/// FormatError naming the tensor that doesn't fit.
MatrixFormat describe_scaled_integers(const StoredMatrix& matrix);

}  // namespace weft::io
