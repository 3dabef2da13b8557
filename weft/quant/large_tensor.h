#pragma once

#include <ATen/core/Tensor.h>

namespace weft::quant {

/// A tensor on the CPU whose values are any, in core::new_memory: for weights, which are read
/// faster from large pages, of which the processor keeps all in mind. Throws IoError if there is no
/// memory.
at::Tensor large_tensor(at::IntArrayRef shape, at::ScalarType type);

}  // namespace weft::quant
