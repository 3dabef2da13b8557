#include "weft/nn/parallel/parallel_linear.h"

#include <ATen/ops/full.h>

#include <utility>

#include "weft/core/error.h"
#include "weft/nn/layers/saved_cut.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/fused_linear.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/nn/linear/new_linear.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/ops/collectives.h"

namespace weft::nn {

using core::check;
using core::ConfigError;
using core::ShapeError;

namespace {

NewParallelLinear make_cut(ShardKind kind, int64_t in_features, int64_t out_features, bool bias,
                           const dist::Group& group) {
  const bool by_rows = kind == ShardKind::kAllToSharded;
  NewLinearSpec spec;
  spec.in_features = in_features;
  spec.out_features = out_features;
  spec.bias = bias;
  const LinearCut cut = strided_cut(kind, by_rows ? out_features : in_features, 1, group,
                                    by_rows ? "nn.AllToShardedLinear" : "nn.ShardedToAllLinear");
  NewLinear made = new_linear(spec, cut);
  return {std::move(made.inner), cut, std::move(made.row_bias)};
}

}  // namespace

at::Tensor held_weight(const LinearLike& linear) {
  const auto parameters = linear.named_parameters(false);
  if (const at::Tensor* parameter = parameters.find("weight")) return *parameter;
  const auto buffers = linear.named_buffers(false);
  const at::Tensor* buffer = buffers.find("weight");
  check<ConfigError>(
      buffer != nullptr,
      "nn.Linear.weight: the layer keeps no tensor of that name, expected a dense or "
      "a quantized one; ask its inner()");
  return *buffer;
}

ShardKind shard_kind_of(std::string_view name) {
  if (name == "all-to-sharded") return ShardKind::kAllToSharded;
  check<ConfigError>(name == "sharded-to-all", "nn.shard_linear: sharding ", core::quote(name),
                     ", expected all-to-sharded or sharded-to-all");
  return ShardKind::kShardedToAll;
}

ParallelLinearImpl::ParallelLinearImpl(std::shared_ptr<LinearLike> inner, LinearCut cut)
    : inner_(register_module("inner", std::move(inner))), cut_(std::move(cut)) {
  const bool by_rows = cut_.kind == ShardKind::kAllToSharded;
  const int64_t held = by_rows ? inner_->out_features() : inner_->in_features();
  const int64_t expected = cut_.layout.lengths().at(static_cast<size_t>(cut_.group.rank()));
  check<ShapeError>(held == expected, by_rows ? "nn.AllToShardedLinear" : "nn.ShardedToAllLinear",
                    ": the inner linear has ", held, by_rows ? " output" : " input",
                    " features, expected this rank's ", expected, " of ", cut_.layout.size);
}

LinearCut ParallelLinearImpl::contiguous_cut(const LinearLike& inner, ShardKind kind,
                                             const dist::Group& group) {
  const bool by_rows = kind == ShardKind::kAllToSharded;
  const at::Tensor own = at::full({1}, by_rows ? inner.out_features() : inner.in_features(),
                                  at::TensorOptions(at::kLong));
  const std::vector<int64_t> ones(static_cast<size_t>(group.size()), 1);
  const at::Tensor all = group.all_gather(own, 0, ones).contiguous();
  const auto* lengths = all.const_data_ptr<int64_t>();
  return {kind, shard::contiguous_layout(by_rows ? 0 : 1, {lengths, lengths + all.numel()}), group};
}

at::Tensor ParallelLinearImpl::weight() const { return held_weight(*inner_); }

int64_t ParallelLinearImpl::in_features() const {
  return cut_.kind == ShardKind::kAllToSharded ? inner_->in_features() : cut_.layout.size;
}

int64_t ParallelLinearImpl::out_features() const {
  return cut_.kind == ShardKind::kAllToSharded ? cut_.layout.size : inner_->out_features();
}

void ParallelLinearImpl::set_inner(std::shared_ptr<LinearLike> inner) {
  check<ShapeError>(inner->in_features() == inner_->in_features() &&
                        inner->out_features() == inner_->out_features(),
                    "nn.ParallelLinear.set_inner: [", inner->out_features(), ", ",
                    inner->in_features(), "], expected [", inner_->out_features(), ", ",
                    inner_->in_features(), "] as before");
  check<ShapeError>(cut_.kind == ShardKind::kAllToSharded || !inner->has_bias(),
                    "nn.ShardedToAllLinear: the inner linear has a bias, which would be "
                    "added once per rank; give it to the layer instead");
  inner_ = replace_module("inner", std::move(inner));
}

void ParallelLinearImpl::save(torch::serialize::OutputArchive& archive) const {
  AnyLinear::save(archive);
  save_cut(archive, {cut_.layout, cut_.group});
}

void ParallelLinearImpl::load(torch::serialize::InputArchive& archive) {
  const char* where =
      cut_.kind == ShardKind::kAllToSharded ? "nn.AllToShardedLinear" : "nn.ShardedToAllLinear";
  check_saved_cut(archive, SavedCut{cut_.layout, cut_.group}, where);
  check_saved_tensors(archive, *this, where);
  AnyLinear::load(archive);
}

void ParallelLinearImpl::exchange_members(const MemberExchange& exchange) {
  inner_ = replace_module("inner", exchange.child_of(inner_));
}

AllToShardedLinearImpl::AllToShardedLinearImpl(int64_t in_features, int64_t out_features, bool bias,
                                               const dist::Group& group)
    : AllToShardedLinearImpl(
          make_cut(ShardKind::kAllToSharded, in_features, out_features, bias, group)) {}

AllToShardedLinearImpl::AllToShardedLinearImpl(NewParallelLinear made)
    : AllToShardedLinearImpl(std::move(made.inner), made.cut.group, made.cut.layout) {}

AllToShardedLinearImpl::AllToShardedLinearImpl(std::shared_ptr<LinearLike> inner, dist::Group group,
                                               shard::Layout layout)
    : Cloned(std::move(inner),
             LinearCut{ShardKind::kAllToSharded, std::move(layout), std::move(group)}) {
  if (auto* dense = dynamic_cast<DenseLinearImpl*>(inner_.get())) dense->share_rows(cut_);
}

AllToShardedLinearImpl::AllToShardedLinearImpl(std::shared_ptr<LinearLike> inner,
                                               const dist::Group& group)
    : Cloned(inner, contiguous_cut(*inner, ShardKind::kAllToSharded, group)) {}

at::Tensor AllToShardedLinearImpl::forward(const at::Tensor& x) {
  return inner_->forward(ops::mp_copy(x, group()));
}

std::shared_ptr<LinearLike> AllToShardedLinearImpl::unshard() const {
  return shardable(*inner_, "nn.AllToShardedLinear.unshard").unshard(cut_, {});
}

ShardedToAllLinearImpl::ShardedToAllLinearImpl(int64_t in_features, int64_t out_features, bool bias,
                                               const dist::Group& group)
    : ShardedToAllLinearImpl(
          make_cut(ShardKind::kShardedToAll, in_features, out_features, bias, group)) {}

ShardedToAllLinearImpl::ShardedToAllLinearImpl(NewParallelLinear made)
    : ShardedToAllLinearImpl(std::move(made.inner), made.cut.group, made.cut.layout,
                             std::move(made.row_bias), true) {}

ShardedToAllLinearImpl::ShardedToAllLinearImpl(std::shared_ptr<LinearLike> inner, dist::Group group,
                                               shard::Layout layout, at::Tensor bias_in,
                                               bool requires_grad)
    : Cloned(std::move(inner),
             LinearCut{ShardKind::kShardedToAll, std::move(layout), std::move(group)}) {
  check<ShapeError>(!inner_->has_bias(),
                    "nn.ShardedToAllLinear: the inner linear has a bias, which would be "
                    "added once per rank; give it to the layer instead");
  check<ShapeError>(
      !bias_in.defined() || (bias_in.dim() == 1 && bias_in.size(0) == inner_->out_features()),
      "nn.ShardedToAllLinear: bias ", bias_in.defined() ? core::list_text(bias_in.sizes()) : "",
      ", expected [", inner_->out_features(), "]");
  check<ShapeError>(!cut_.layout.overlaps(),
                    "nn.ShardedToAllLinear: columns that several ranks hold would be summed more "
                    "than once; cut them without overlap");
  if (bias_in.defined()) bias = register_parameter("bias", std::move(bias_in), requires_grad);
}

ShardedToAllLinearImpl::ShardedToAllLinearImpl(std::shared_ptr<LinearLike> inner,
                                               const dist::Group& group, at::Tensor bias_in,
                                               bool requires_grad)
    : ShardedToAllLinearImpl(inner, group,
                             contiguous_cut(*inner, ShardKind::kShardedToAll, group).layout,
                             std::move(bias_in), requires_grad) {}

at::Tensor ShardedToAllLinearImpl::forward_rows(const at::Tensor& x, const RowCounts& rows) {
  const at::Tensor y = ordered_ != nullptr ? ordered_linear(*inner_, x, *ordered_)
                                           : reduced_linear(*inner_, x, group(), rows);
  return bias.defined() ? y + bias.to(y.scalar_type()) : y;
}

void ShardedToAllLinearImpl::exchange_members(const MemberExchange& exchange) {
  ParallelLinearImpl::exchange_members(exchange);
  if (bias.defined()) bias = parameters_["bias"] = exchange.parameter("bias", bias);
}

std::shared_ptr<LinearLike> ShardedToAllLinearImpl::unshard() const {
  return shardable(*inner_, "nn.ShardedToAllLinear.unshard").unshard(cut_, bias);
}

}  // namespace weft::nn
