#pragma once

#include <ATen/core/Tensor.h>

#include "weft/nn/kernels/kernel.h"

namespace weft::nn {

/// The loops for a tensor's elements, or null: not float32 or bfloat16, or not on the CPU.
const kernels::ElementKernel* element_kernel(const at::Tensor& x);

}  // namespace weft::nn
