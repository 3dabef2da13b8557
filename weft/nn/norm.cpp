#include "weft/nn/norm.h"

#include <ATen/ops/rms_norm.h>

#include <utility>

#include "weft/core/error.h"

namespace weft::nn {

RMSNormImpl::RMSNormImpl(at::Tensor weight_in, double eps, bool requires_grad) : eps_(eps) {
  core::check<core::ShapeError>(weight_in.dim() == 1, "nn.RMSNorm: weight ",
                                core::list_text(weight_in.sizes()), ", expected [D]");
  weight = register_parameter("weight", std::move(weight_in), requires_grad);
}

at::Tensor RMSNormImpl::forward(const at::Tensor& x) {
  if (x.scalar_type() == weight.scalar_type() && x.scalar_type() == at::kFloat) {
    return at::rms_norm(x, weight.sizes(), weight, eps_);
  }
  const at::Tensor y = at::rms_norm(x.to(at::kFloat), weight.sizes(), weight.to(at::kFloat), eps_);
  return y.to(x.scalar_type());
}

}  // namespace weft::nn
