#pragma once

#include "weft/io/load_tensor.h"

namespace weft::io {

/// What load_matrix was asked for.
struct MatrixRead {
  const TensorFile& file;
  const MatrixSource& matrix;
  at::ScalarType dense_dtype;
  ReadStats* stats;
};

/// load_matrix for the formats of several tensors: reads all parts, then decodes them and cuts away
/// what was read beside the slice. Throws as load_matrix.
LoadedMatrix load_affine(const MatrixRead& read);
LoadedMatrix load_microscaled(const MatrixRead& read);
LoadedMatrix load_awq(const MatrixRead& read);
LoadedMatrix load_awq_rows(const MatrixRead& read);
LoadedMatrix load_gptq(const MatrixRead& read);
LoadedMatrix load_scaled_integers(const MatrixRead& read);
LoadedMatrix load_ordered_integers(const MatrixRead& read);

/// Plain numbers without what was read beside the slice.
at::Tensor trimmed_plain(at::Tensor read, const MatrixSource& matrix);

}  // namespace weft::io
