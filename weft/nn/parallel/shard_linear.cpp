#include "weft/nn/parallel/shard_linear.h"

#include <utility>

#include "weft/core/error.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/equal_wholes.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/nn/linear/quantized_linear.h"

namespace weft::nn {
namespace {

std::string where_text(const std::string& name, ShardKind kind, const LinearLike& linear) {
  return core::join("nn.shard_linear: ", name, " [", linear.out_features(), ", ",
                    linear.in_features(), "], ",
                    kind == ShardKind::kAllToSharded ? "output" : "input", " features");
}

// What must be said alike on all ranks, before anything that only some of them might refuse.
void check_equal(const LinearLike& linear, const std::string& cut, const std::string& where,
                 const dist::Group& group) {
  check_equal_wholes(wholes_of(linear, cut), where, group);
}

std::shared_ptr<ParallelLinearImpl> cut_linear(const ShardableLinear& linear,
                                               const LinearCut& cut) {
  std::shared_ptr<LinearLike> part = linear.shard(cut);
  if (cut.kind == ShardKind::kAllToSharded) {
    return std::make_shared<AllToShardedLinearImpl>(std::move(part), cut.group, cut.layout);
  }
  const at::Tensor bias = linear.bias_or_undefined();
  return std::make_shared<ShardedToAllLinearImpl>(
      std::move(part), cut.group, cut.layout, bias.defined() ? bias.detach().clone() : at::Tensor(),
      bias.defined() && bias.requires_grad());
}

}  // namespace

std::shared_ptr<ParallelLinearImpl> shard_linear(const LinearLike& linear, ShardKind kind,
                                                 const dist::Group& group,
                                                 const ShardOptions& options) {
  const bool by_rows = kind == ShardKind::kAllToSharded;
  const std::string where = where_text(options.name, kind, linear);
  check_equal(linear,
              core::join(by_rows, " ", core::list_text(options.segments), " ", options.unit), where,
              group);
  const ShardableLinear& whole = shardable(linear, where);
  const int64_t own_unit = by_rows ? 1 : whole.column_unit(group.size());
  const int64_t unit = options.unit == 0 ? own_unit : options.unit;
  const shard::Split split{by_rows ? 0 : 1, options.segments, unit};
  const int64_t size = by_rows ? linear.out_features() : linear.in_features();
  const auto layout = shard::make_layout(split, size, group.size(), where);
  return cut_linear(whole, {kind, layout, group});
}

std::shared_ptr<ParallelLinearImpl> shard_linear(const LinearLike& linear, ShardKind kind,
                                                 const dist::Group& group, shard::Layout layout) {
  layout.dim = kind == ShardKind::kAllToSharded ? 0 : 1;
  const std::string where = where_text("linear", kind, linear);
  check_equal(linear, layout_text(layout), where, group);
  const ShardableLinear& whole = shardable(linear, where);
  shard::check_layout(layout, where);
  return cut_linear(whole, {kind, std::move(layout), group});
}

std::shared_ptr<ParallelLinearImpl> shard_linear(const torch::nn::Linear& linear, ShardKind kind,
                                                 const dist::Group& group,
                                                 const ShardOptions& options) {
  return shard_linear(*linear_like(linear), kind, group, options);
}

std::shared_ptr<LinearLike> linear_like(const torch::nn::Linear& linear) {
  auto dense = std::make_shared<DenseLinearImpl>(linear->weight, linear->bias,
                                                 linear->weight.requires_grad());
  if (dense->bias.defined()) dense->bias.set_requires_grad(linear->bias.requires_grad());
  return dense;
}

AllToShardedLinear quantized_all_to_sharded_linear(const quant::QuantizedMatrix& weight,
                                                   const at::Tensor& bias, const dist::Group& group,
                                                   const ShardOptions& options) {
  const QuantizedLinearImpl whole(weight, bias);
  return AllToShardedLinear(std::dynamic_pointer_cast<AllToShardedLinearImpl>(
      shard_linear(whole, ShardKind::kAllToSharded, group, options)));
}

ShardedToAllLinear quantized_sharded_to_all_linear(const quant::QuantizedMatrix& weight,
                                                   const at::Tensor& bias, const dist::Group& group,
                                                   const ShardOptions& options) {
  const QuantizedLinearImpl whole(weight, bias);
  return ShardedToAllLinear(std::dynamic_pointer_cast<ShardedToAllLinearImpl>(
      shard_linear(whole, ShardKind::kShardedToAll, group, options)));
}

}  // namespace weft::nn
