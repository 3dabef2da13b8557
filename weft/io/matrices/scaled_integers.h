#pragma once

#include "weft/io/matrices/matrix_format.h"
#include "weft/io/matrices/stored_matrix.h"

namespace weft::io {

/// Whether the matrix is stored as bitsandbytes stores numbers of 8 bits
/// (MatrixKind::kScaledIntegers): <base>.weight of int8, and <base>.SCB, each row's largest number.
bool has_byte_rows(const StoredMatrix& matrix);

/// Its parts and units, checked. Beside them stands <base>.weight_format, whose byte is checked
/// with the matrix. Throws FormatError naming the tensor that doesn't fit.
MatrixFormat describe_byte_rows(const StoredMatrix& matrix);

/// Whether the matrix is stored as compressed-tensors stores integers
/// (MatrixKind::kScaledIntegers): <base>.weight_packed, or <base>.weight of int8.
bool has_scaled_integers(const StoredMatrix& matrix);

/// Its parts and units, checked: numbers, <base>.weight_scale, and <base>.weight_zero_point and
/// <base>.weight_g_idx if it has them; with the latter it is MatrixKind::kOrderedIntegers. Zero
/// points are beside it where rows are read in another order or don't fill their words
/// (zero_points.h). Throws FormatError naming the tensor that doesn't fit.
MatrixFormat describe_scaled_integers(const StoredMatrix& matrix);

}  // namespace weft::io
