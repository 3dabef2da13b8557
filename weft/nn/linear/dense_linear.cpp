#include "weft/nn/linear/dense_linear.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>

#include <utility>

#include "weft/core/error.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/ops/shared_gradient.h"

namespace weft::nn {

DenseLinearImpl::DenseLinearImpl(at::Tensor weight_in, at::Tensor bias_in, bool requires_grad) {
  core::check<core::ShapeError>(weight_in.dim() == 2, "nn.DenseLinear: weight ",
                                core::list_text(weight_in.sizes()), ", expected [out, in]");
  check_bias(bias_in, weight_in.size(0), "nn.DenseLinear");
  weight = register_parameter("weight", std::move(weight_in), requires_grad);
  if (bias_in.defined()) bias = register_parameter("bias", std::move(bias_in), requires_grad);
}

at::Tensor DenseLinearImpl::forward(const at::Tensor& x) {
  check_input(x, in_features(), "nn.DenseLinear");
  if (!shared_) return at::linear(x, weight, bias);
  const auto summed = [&](const at::Tensor& parameter) {
    return parameter.defined()
               ? ops::sum_shared_gradient(parameter, shared_->layout, shared_->group)
               : parameter;
  };
  return at::linear(x, summed(weight), summed(bias));
}

void DenseLinearImpl::share_rows(const LinearCut& cut) {
  if (cut.layout.overlaps()) shared_ = cut;
}

at::Tensor DenseLinearImpl::rows(const at::Tensor& indices) {
  return at::embedding(weight, indices);
}

void DenseLinearImpl::exchange_members(const MemberExchange& exchange) {
  weight = parameters_["weight"] = exchange.parameter("weight", weight);
  if (bias.defined()) bias = parameters_["bias"] = exchange.parameter("bias", bias);
}

int64_t DenseLinearImpl::weight_bytes() const { return static_cast<int64_t>(weight.nbytes()); }

std::shared_ptr<LinearLike> DenseLinearImpl::shard(const LinearCut& cut) const {
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  check_shardable(*this, cut, "nn.DenseLinear");
  auto part = std::make_shared<DenseLinearImpl>(
      own_part(weight, cut), by_rows && bias.defined() ? own_part(bias, cut) : at::Tensor());
  part->weight.set_requires_grad(weight.requires_grad());
  if (part->bias.defined()) part->bias.set_requires_grad(bias.requires_grad());
  part->share_rows(cut);
  return part;
}

std::shared_ptr<LinearLike> DenseLinearImpl::unshard(const LinearCut& cut,
                                                     const at::Tensor& row_bias) const {
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  at::Tensor whole_bias = row_bias.defined() ? row_bias.detach().clone() : at::Tensor();
  if (by_rows && bias.defined()) whole_bias = gather_whole(bias, cut);
  auto whole = std::make_shared<DenseLinearImpl>(gather_whole(weight, cut), whole_bias);
  whole->weight.set_requires_grad(weight.requires_grad());
  const at::Tensor& former_bias = by_rows ? bias : row_bias;
  if (whole_bias.defined()) whole->bias.set_requires_grad(former_bias.requires_grad());
  return whole;
}

}  // namespace weft::nn
