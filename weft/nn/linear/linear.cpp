#include "weft/nn/linear/linear.h"

#include <utility>

#include "weft/core/error.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::nn {

LinearImpl::LinearImpl(int64_t in_features, int64_t out_features, bool bias)
    : LinearImpl(
          torch::nn::Linear(torch::nn::LinearOptions(in_features, out_features).bias(bias))) {}

LinearImpl::LinearImpl(const torch::nn::Linear& linear) : LinearImpl(linear_like(linear)) {}

LinearImpl::LinearImpl(std::shared_ptr<AnyLinear> layer)
    : layer_(register_module("inner", std::move(layer))) {}

void LinearImpl::shard(ShardKind kind, const dist::Group& group, const ShardOptions& options) {
  layer_ = replace_module("inner", shard_linear(*whole_or_throw(), kind, group, options));
}

void LinearImpl::shard(ShardKind kind, const dist::Group& group, const shard::Layout& layout) {
  layer_ = replace_module("inner", shard_linear(*whole_or_throw(), kind, group, layout));
}

void LinearImpl::unshard() {
  const auto parallel = std::dynamic_pointer_cast<ParallelLinearImpl>(layer_);
  if (parallel != nullptr) layer_ = replace_module("inner", parallel->unshard());
}

at::Tensor LinearImpl::weight() const {
  const auto parallel = std::dynamic_pointer_cast<ParallelLinearImpl>(layer_);
  return parallel != nullptr ? parallel->weight() : held_weight(*inner());
}

std::shared_ptr<LinearLike> LinearImpl::inner() const {
  return std::dynamic_pointer_cast<LinearLike>(layer_);
}

void LinearImpl::set_inner(std::shared_ptr<LinearLike> inner) {
  core::check<core::ShapeError>(
      inner->in_features() == in_features() && inner->out_features() == out_features(),
      "nn.Linear.set_inner: [", inner->out_features(), ", ", inner->in_features(), "], expected [",
      out_features(), ", ", in_features(), "] as before");
  layer_ = replace_module("inner", std::move(inner));
}

std::shared_ptr<LinearLike> LinearImpl::whole_or_throw() const {
  const auto parallel = std::dynamic_pointer_cast<ParallelLinearImpl>(layer_);
  core::check<core::ConfigError>(
      parallel == nullptr, "nn.Linear.shard: [", out_features(), ", ", in_features(),
      "] is cut already over group ", parallel ? parallel->group().name() : "", " of ",
      parallel ? parallel->group().size() : 0, " ranks; unshard it first");
  return inner();
}

Linear shard_linear(Linear linear, std::string_view sharding, const dist::Group& group,
                    const ShardOptions& options) {
  linear->shard(shard_kind_of(sharding), group, options);
  return linear;
}

Linear shard_linear(const torch::nn::Linear& linear, std::string_view sharding,
                    const dist::Group& group, const ShardOptions& options) {
  return shard_linear(Linear(linear), sharding, group, options);
}

}  // namespace weft::nn
