#include "weft/nn/linear/lora.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>

#include <utility>

#include "weft/core/error.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/ops/collectives.h"
#include "weft/ops/shared_gradient.h"

namespace weft::nn {
namespace {

constexpr char kLoraLinear[] = "nn.LoraLinear";

bool is_cut(const std::optional<LinearCut>& cut, ShardKind kind) {
  return cut.has_value() && cut->kind == kind;
}

at::Tensor with_grad_of(at::Tensor copy, const at::Tensor& original) {
  return copy.set_requires_grad(original.requires_grad());
}

}  // namespace

LoraLinearImpl::LoraLinearImpl(std::shared_ptr<LinearLike> base, at::Tensor a, at::Tensor b,
                               double scale, std::optional<LinearCut> cut)
    : base_(register_module("base", std::move(base))), scale_(scale), cut_(std::move(cut)) {
  core::check<core::ShapeError>(a.dim() == 2 && b.dim() == 2 && a.size(0) == b.size(1) &&
                                    a.size(1) == in_features() && b.size(0) == out_features(),
                                "nn.LoraLinear: A ", core::list_text(a.sizes()), " and B ",
                                core::list_text(b.sizes()), ", expected [r, ", in_features(),
                                "] and [", out_features(), ", r]");
  const bool a_trains = a.requires_grad(), b_trains = b.requires_grad();
  lora_a = register_parameter("lora_a", std::move(a), a_trains);
  lora_b = register_parameter("lora_b", std::move(b), b_trains);
  freeze_base();
}

void LoraLinearImpl::freeze_base() {
  for (at::Tensor& parameter : base_->parameters()) parameter.set_requires_grad(false);
}

at::Tensor LoraLinearImpl::adapter_input(const at::Tensor& x) const {
  if (dropout_.p == 0 || !is_training()) return x;
  const ActivationPlace* around = PlaceScope::current();
  core::check<core::ConfigError>(around != nullptr,
                                 "nn.LoraLinear: dropout without a place of its rows; put a "
                                 "PlaceScope around forward, or call eval()");
  ActivationPlace place = *around;
  if (is_cut(cut_, ShardKind::kShardedToAll)) {
    place.whole_size = cut_->layout.size;
    place.ranges = cut_->layout.of(cut_->group.rank());
  }
  return dropped(x, dropout_, place);
}

at::Tensor LoraLinearImpl::forward(const at::Tensor& x) {
  if (merged_ != nullptr) return merged_->forward(x);
  const at::Tensor y = base_->forward(x);
  at::Tensor a = lora_a, b = lora_b;
  if (is_cut(cut_, ShardKind::kAllToSharded)) {
    a = ops::mp_copy(a, cut_->group);
    b = ops::sum_shared_gradient(b, cut_->layout, cut_->group);
  } else if (is_cut(cut_, ShardKind::kShardedToAll)) {
    b = ops::mp_copy(b, cut_->group);
  }
  const at::Tensor low = at::linear(adapter_input(x).to(a.scalar_type()), a);
  return y + (at::linear(low, b) * scale_).to(y.scalar_type());
}

at::Tensor LoraLinearImpl::rows(const at::Tensor& indices) {
  const at::Tensor rows = base_->rows(indices);
  const at::Tensor a =
      is_cut(cut_, ShardKind::kAllToSharded) ? ops::mp_copy(lora_a, cut_->group) : lora_a;
  const at::Tensor low = at::embedding(lora_b, indices);
  return rows + (at::matmul(low, a) * scale_).to(rows.scalar_type());
}

int64_t LoraLinearImpl::weight_bytes() const {
  return base_->weight_bytes() + static_cast<int64_t>(lora_a.nbytes() + lora_b.nbytes());
}

at::Tensor LoraLinearImpl::dense_weight() const {
  const at::Tensor base = base_->dense_weight();
  const at::Tensor product = at::matmul(lora_b.detach(), lora_a.detach()) * scale_;
  return base + product.to(base.scalar_type());
}

int64_t LoraLinearImpl::column_unit(int64_t n) const {
  return shardable(*base_, kLoraLinear).column_unit(n);
}

std::shared_ptr<LinearLike> LoraLinearImpl::shard(const LinearCut& cut) const {
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  const at::Tensor a = by_rows ? lora_a.detach().clone() : own_part(lora_a, cut);
  const at::Tensor b = by_rows ? own_part(lora_b, cut) : lora_b.detach().clone();
  auto part = std::make_shared<LoraLinearImpl>(shardable(*base_, kLoraLinear).shard(cut),
                                               with_grad_of(a, lora_a), with_grad_of(b, lora_b),
                                               scale_, cut);
  part->set_dropout(dropout_);
  return part;
}

std::shared_ptr<LinearLike> LoraLinearImpl::unshard(const LinearCut& cut,
                                                    const at::Tensor& bias) const {
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  const at::Tensor a = by_rows ? lora_a.detach().clone() : gather_whole(lora_a, cut);
  const at::Tensor b = by_rows ? gather_whole(lora_b, cut) : lora_b.detach().clone();
  auto whole =
      std::make_shared<LoraLinearImpl>(shardable(*base_, kLoraLinear).unshard(cut, bias),
                                       with_grad_of(a, lora_a), with_grad_of(b, lora_b), scale_);
  whole->set_dropout(dropout_);
  return whole;
}

void LoraLinearImpl::exchange_members(const MemberExchange& exchange) {
  lora_a = parameters_["lora_a"] = exchange.parameter("lora_a", lora_a);
  lora_b = parameters_["lora_b"] = exchange.parameter("lora_b", lora_b);
  base_ = replace_module("base", exchange.child_of(base_));
  if (is_merged()) {
    unmerge();
    merge();
  }
}

void LoraLinearImpl::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  if (is_merged()) merged_->to(dtype, non_blocking);
}

void LoraLinearImpl::to(torch::Device device, bool non_blocking) {
  Module::to(device, non_blocking);
  if (is_merged()) merged_->to(device, non_blocking);
}

void LoraLinearImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  if (is_merged()) merged_->to(device, dtype, non_blocking);
}

void LoraLinearImpl::merge() {
  if (is_merged()) return;
  merged_ = std::make_shared<DenseLinearImpl>(dense_weight(), bias_or_undefined());
}

void LoraLinearImpl::set_base(std::shared_ptr<LinearLike> base) {
  core::check<core::ShapeError>(
      base->in_features() == in_features() && base->out_features() == out_features(),
      "nn.LoraLinear.set_base: [", base->out_features(), ", ", base->in_features(), "], expected [",
      out_features(), ", ", in_features(), "] as before");
  unmerge();
  base_ = replace_module("base", std::move(base));
  freeze_base();
}

}  // namespace weft::nn
