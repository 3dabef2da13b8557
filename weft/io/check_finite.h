#pragma once

#include "weft/io/tensor_file.h"

namespace weft::io {

/// Reads all floating tensors of a file, and the scales of its GGUF blocks, and throws FormatError
/// that names file and tensor if one of the numbers is NaN or infinite. Takes as long as reading
/// the file; 8-bit floats are not looked at.
void check_finite(const TensorFile& file);

}  // namespace weft::io
