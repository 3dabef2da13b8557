#pragma once

#include "weft/io/matrices/stored_matrix.h"

namespace weft::io {

/// Whether a matrix is codes of 4 bits with the numbers that they stand for, nf4 or fp4, as
/// bitsandbytes writes them (MatrixKind::kCodebook).
bool has_codebook(const StoredMatrix& matrix);

/// Its part and units, checked by shapes alone; what the tensors beside it say is read with the
/// matrix. Throws FormatError naming the tensor that doesn't fit.
MatrixFormat describe_codebook(const StoredMatrix& matrix);

}  // namespace weft::io
