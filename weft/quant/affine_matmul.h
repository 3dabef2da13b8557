#pragma once

#include "weft/quant/affine.h"
#include "weft/quant/kernels/kernel.h"

namespace weft::quant {

/// affine_matmul on a given kernel: for comparing and measuring them.
at::Tensor affine_matmul_on(const kernels::Kernel& kernel, const at::Tensor& x,
                            const AffineTensor& w);

}  // namespace weft::quant
