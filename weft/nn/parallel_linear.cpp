#include "weft/nn/parallel_linear.h"

#include <utility>

#include "weft/core/error.h"
#include "weft/ops/collectives.h"

namespace weft::nn {

AllToShardedLinearImpl::AllToShardedLinearImpl(std::shared_ptr<LinearLike> inner, dist::Group group)
    : inner_(register_module("inner", std::move(inner))), group_(std::move(group)) {}

at::Tensor AllToShardedLinearImpl::forward(const at::Tensor& x) {
  return inner_->forward(ops::mp_copy(x, group_));
}

ShardedToAllLinearImpl::ShardedToAllLinearImpl(std::shared_ptr<LinearLike> inner, dist::Group group,
                                               at::Tensor bias_in, bool requires_grad)
    : inner_(register_module("inner", std::move(inner))), group_(std::move(group)) {
  core::check<core::ShapeError>(
      !inner_->has_bias(),
      "nn.ShardedToAllLinear: the inner linear has a bias, which would be "
      "added once per rank; give it to the layer instead");
  core::check<core::ShapeError>(
      !bias_in.defined() || (bias_in.dim() == 1 && bias_in.size(0) == inner_->out_features()),
      "nn.ShardedToAllLinear: bias ", bias_in.defined() ? core::list_text(bias_in.sizes()) : "",
      ", expected [", inner_->out_features(), "]");
  if (bias_in.defined()) bias = register_parameter("bias", std::move(bias_in), requires_grad);
}

at::Tensor ShardedToAllLinearImpl::forward(const at::Tensor& x) {
  const at::Tensor y = ops::mp_reduce(inner_->forward(x), group_);
  return bias.defined() ? y + bias.to(y.scalar_type()) : y;
}

}  // namespace weft::nn
