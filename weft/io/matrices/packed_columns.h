#pragma once

#include "weft/io/matrices/stored_matrix.h"

namespace weft::io {

// AutoAWQ's and AutoGPTQ's: <base>.qweight, .qzeros and .scales. AWQ packs along `out`, GPTQ along
// `in`, and both keep [in, out]; AWQ's version gemv keeps [out, in] and packs along `in`. Each
// description throws FormatError naming the tensor that doesn't fit.

/// MatrixKind::kAwqRows.
bool is_awq_rows(const StoredMatrix& matrix);
MatrixFormat describe_awq_rows(const StoredMatrix& matrix);
/// Of kAwqRows, whose quant groups the padded scales need not tell: takes those of `group_size`, if
/// it has as many scales.
void take_group_size(const MatrixRef& matrix, int64_t group_size, MatrixFormat& format);

/// MatrixKind::kAwq.
bool is_awq(const StoredMatrix& matrix);
MatrixFormat describe_awq(const StoredMatrix& matrix);

/// MatrixKind::kGptq.
bool is_gptq(const StoredMatrix& matrix);
MatrixFormat describe_gptq(const StoredMatrix& matrix);

}  // namespace weft::io
