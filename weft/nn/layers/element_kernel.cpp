#include "weft/nn/layers/element_kernel.h"

#include "weft/nn/kernels/select.h"

namespace weft::nn {

const kernels::ElementKernel* element_kernel(const at::Tensor& x) {
  if (!x.device().is_cpu()) return nullptr;
  if (x.scalar_type() == at::kFloat) return &kernels::active_kernel().float32;
  return x.scalar_type() == at::kBFloat16 ? &kernels::active_kernel().bfloat16 : nullptr;
}

}  // namespace weft::nn
