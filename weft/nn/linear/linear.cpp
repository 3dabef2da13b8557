#include "weft/nn/linear/linear.h"

#include <map>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::nn {
namespace {

// "inner.base.weight" is "weight". A layer has one parameter of each name, however it is wrapped.
std::string own_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// The tensor that others may hold, e.g. an optimizer, with the numbers of `value`.
at::Tensor moved_into(at::Tensor tensor, const at::Tensor& value) {
  tensor.mutable_grad() = at::Tensor();
  tensor.set_data(value.detach());
  return tensor.set_requires_grad(value.requires_grad());
}

}  // namespace

LinearImpl::LinearImpl(int64_t in_features, int64_t out_features, bool bias)
    : LinearImpl(
          torch::nn::Linear(torch::nn::LinearOptions(in_features, out_features).bias(bias))) {}

LinearImpl::LinearImpl(const torch::nn::Linear& linear) : LinearImpl(linear_like(linear)) {}

LinearImpl::LinearImpl(std::shared_ptr<AnyLinear> layer)
    : layer_(register_module("inner", std::move(layer))) {}

void LinearImpl::shard(ShardKind kind, const dist::Group& group, const ShardOptions& options) {
  stand_in(shard_linear(*whole_or_throw(), kind, group, options));
}

void LinearImpl::shard(ShardKind kind, const dist::Group& group, const shard::Layout& layout) {
  stand_in(shard_linear(*whole_or_throw(), kind, group, layout));
}

void LinearImpl::unshard() {
  const auto parallel = std::dynamic_pointer_cast<ParallelLinearImpl>(layer_);
  if (parallel != nullptr) stand_in(parallel->unshard());
}

void LinearImpl::stand_in(std::shared_ptr<AnyLinear> layer) {
  std::map<std::string, at::Tensor> former;
  for (const auto& item : layer_->named_parameters()) former[own_name(item.key())] = item.value();
  MemberExchange exchange;
  exchange.parameter = [&](const std::string& name, const at::Tensor& own) {
    const auto kept = former.extract(name);
    return kept.empty() ? own : moved_into(kept.mapped(), own);
  };
  exchange.child = [&](const std::shared_ptr<torch::nn::Module>& own) {
    if (auto* inner = dynamic_cast<AnyLinear*>(own.get())) inner->exchange_members(exchange);
    return own;
  };
  layer->exchange_members(exchange);
  for (const auto& [name, tensor] : former) {
    core::check<core::ConfigError>(
        !tensor.requires_grad(), "nn.Linear: a ", layer->name(), " does not take over parameter ",
        name, ", so an optimizer that holds it would move nothing; name it in exchange_members");
  }
  layer_ = replace_module("inner", std::move(layer));
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

void LinearImpl::exchange_members(const MemberExchange& exchange) {
  layer_ = replace_module("inner", exchange.child_of(layer_));
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
