#pragma once

#include "weft/io/tensor_file.h"

namespace weft::testing {

/// Reads every tensor of a source, and the second half of its columns, so far as that is little.
void read_tensors(const io::TensorFile& source);

}  // namespace weft::testing
