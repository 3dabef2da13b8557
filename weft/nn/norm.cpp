#include "weft/nn/norm.h"

#include <ATen/ops/rms_norm.h>

#include <utility>

#include "weft/core/error.h"
#include "weft/ops/collectives.h"

namespace weft::nn {
namespace {

at::Tensor checked_weight(at::Tensor weight, const char* where) {
  core::check<core::ShapeError>(weight.dim() == 1, where, ": weight ",
                                core::list_text(weight.sizes()), ", expected [D]");
  return weight;
}

at::Tensor normed(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (x.scalar_type() == weight.scalar_type() && x.scalar_type() == at::kFloat) {
    return at::rms_norm(x, weight.sizes(), weight, eps);
  }
  const at::Tensor y = at::rms_norm(x.to(at::kFloat), weight.sizes(), weight.to(at::kFloat), eps);
  return y.to(x.scalar_type());
}

}  // namespace

RMSNormImpl::RMSNormImpl(at::Tensor weight_in, double eps, bool requires_grad) : eps_(eps) {
  weight = register_parameter("weight", checked_weight(std::move(weight_in), "nn.RMSNorm"),
                              requires_grad);
}

at::Tensor RMSNormImpl::forward(const at::Tensor& x) { return normed(x, weight, eps_); }

SequenceParallelRMSNormImpl::SequenceParallelRMSNormImpl(at::Tensor weight_in, double eps,
                                                         dist::Group group, bool requires_grad)
    : eps_(eps), group_(std::move(group)) {
  weight = register_parameter(
      "weight", checked_weight(std::move(weight_in), "nn.SequenceParallelRMSNorm"), requires_grad);
}

at::Tensor SequenceParallelRMSNormImpl::forward(const at::Tensor& x) {
  return normed(x, ops::mp_copy(weight, group_), eps_);
}

HeadRMSNormImpl::HeadRMSNormImpl(at::Tensor weight_in, double eps, dist::Group group,
                                 bool requires_grad)
    : eps_(eps), group_(std::move(group)) {
  weight = register_parameter("weight", checked_weight(std::move(weight_in), "nn.HeadRMSNorm"),
                              requires_grad);
}

at::Tensor HeadRMSNormImpl::forward(const at::Tensor& x_BTnH) {
  core::check<core::ShapeError>(x_BTnH.dim() == 4 && x_BTnH.size(3) == weight.size(0),
                                "nn.HeadRMSNorm: input ", core::list_text(x_BTnH.sizes()),
                                ", expected [B, T, heads, ", weight.size(0), "]");
  return normed(x_BTnH, ops::mp_copy(weight, group_), eps_);
}

ShardedRMSNormImpl::ShardedRMSNormImpl(at::Tensor weight_in, int64_t whole_size, double eps,
                                       dist::Group group, bool requires_grad)
    : whole_size_(whole_size), eps_(eps), group_(std::move(group)) {
  weight = register_parameter("weight", checked_weight(std::move(weight_in), "nn.ShardedRMSNorm"),
                              requires_grad);
  core::check<core::ShapeError>(weight.size(0) <= whole_size_, "nn.ShardedRMSNorm: weight [",
                                weight.size(0), "] of a whole of ", whole_size_,
                                "; give this rank's part");
}

at::Tensor ShardedRMSNormImpl::forward(const at::Tensor& x) {
  core::check<core::ShapeError>(x.dim() >= 1 && x.size(-1) == weight.size(0),
                                "nn.ShardedRMSNorm: input ", core::list_text(x.sizes()),
                                ", expected the last dim to be this rank's ", weight.size(0),
                                " of ", whole_size_);
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor values = x.to(type);
  const at::Tensor own = values.square().sum(-1, true);
  // Every rank scales its part by the whole's sum, so gradients of the sum come from all ranks.
  const at::Tensor sum = ops::mp_copy(ops::mp_reduce(own, group_), group_);
  const at::Tensor scale = (sum / static_cast<double>(whole_size_) + eps_).rsqrt();
  return (values * scale * weight.to(type)).to(x.scalar_type());
}

}  // namespace weft::nn
