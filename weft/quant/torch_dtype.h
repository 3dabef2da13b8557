#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "weft/core/dtype.h"

namespace weft::quant {

/// libtorch's type for the elements of `dtype`; none for blocks and for 8-bit floats. Unsigned
/// words are int32, whose bits are the same.
std::optional<at::ScalarType> torch_dtype(core::Dtype dtype);

/// The floating type that `type` is: F64, F32, F16 or BF16; none for others.
std::optional<core::Dtype> floating_dtype(at::ScalarType type);

}  // namespace weft::quant
