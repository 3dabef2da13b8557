#pragma once

#include "weft/quant/affine.h"
#include "weft/quant/formats/microscaled.h"
#include "weft/quant/kernels/kernel.h"

namespace weft::quant {

/// affine_matmul and microscaled_matmul on a given kernel: for comparing and measuring them.
at::Tensor matmul_on(const kernels::Kernel& kernel, const at::Tensor& x, const AffineTensor& w);
at::Tensor matmul_on(const kernels::Kernel& kernel, const at::Tensor& x,
                     const MicroscaledTensor& w);

}  // namespace weft::quant
