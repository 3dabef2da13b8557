#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <string>

#include "weft/io/dtype.h"
#include "weft/io/matrices/matrix_format.h"

namespace weft::models {

/// The floating types of files. Throws ConfigError for another one.
io::Dtype file_type(at::ScalarType type);
/// F16 and BF16 as torch has them, float32 for all others.
at::ScalarType torch_type(io::Dtype dtype);
/// The type in which a matrix is written as plain numbers if nobody says one: its own, or
/// plain_half. `stored` is that of its first part.
at::ScalarType plain_type(io::MatrixKind kind, io::Dtype stored);
/// The numbers in `dtype`, contiguous. Throws FormatError, naming the tensor, for numbers that
/// float16 can't hold.
at::Tensor converted(const at::Tensor& numbers, at::ScalarType dtype, const std::string& name);
/// The bytes of a contiguous tensor.
std::span<const std::byte> bytes_of(const at::Tensor& tensor);

}  // namespace weft::models
