#include "weft/nn/adapters/adapted_linear.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <c10/util/FunctionRef.h>

#include <string>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/nn/adapters/adapter_scope.h"

namespace weft::nn {
namespace {

constexpr char kAdaptedLinear[] = "nn.AdaptedLinear";

using SequenceSum =
    c10::function_ref<at::Tensor(int64_t number, const at::Tensor& x, const at::Tensor& y)>;

// What `sum` makes of each sequence's rows of x and y. One after the other: a product of more rows
// may round them otherwise.
at::Tensor for_sequences(const at::Tensor& x, const at::Tensor& y, SequenceSum sum) {
  const auto numbers = AdapterScope::current();
  if (numbers.size() <= 1) return sum(numbers.empty() ? 0 : numbers.front(), x, y);
  core::check<core::ShapeError>(x.dim() > 0 && x.size(0) == std::ssize(numbers), kAdaptedLinear,
                                ": input ", core::list_text(x.sizes()), ", expected ",
                                numbers.size(), " sequences as adapters are named for");
  std::vector<at::Tensor> sums;
  for (int64_t i = 0; i < x.size(0); ++i) {
    sums.push_back(sum(numbers[static_cast<size_t>(i)], x[i], y[i]));
  }
  return at::stack(sums);
}

}  // namespace

AdaptedLinearImpl::AdaptedLinearImpl(std::shared_ptr<LinearLike> base)
    : base_(register_module("base", std::move(base))) {}

void AdaptedLinearImpl::add(int64_t number, LowRank adapter) {
  const at::Tensor &a = adapter.a, &b = adapter.b;
  core::check<core::ConfigError>(!adapters_.contains(number), kAdaptedLinear,
                                 ": has an adapter of number ", number, " already");
  core::check<core::ShapeError>(a.dim() == 2 && b.dim() == 2 && a.size(0) == b.size(1) &&
                                    a.size(1) == in_features() && b.size(0) == out_features(),
                                kAdaptedLinear, ": A ", core::list_text(a.sizes()), " and B ",
                                core::list_text(b.sizes()), ", expected [r, ", in_features(),
                                "] and [", out_features(), ", r]");
  const auto kept = [&](const char* name, const at::Tensor& factor) {
    return register_buffer(name + std::to_string(number),
                           factor.detach().to(at::kFloat).contiguous());
  };
  adapters_.emplace(number, LowRank{kept("lora_a", a), kept("lora_b", b), adapter.scale});
}

const LowRank* AdaptedLinearImpl::find(int64_t number) const {
  const auto found = adapters_.find(number);
  return found == adapters_.end() ? nullptr : &found->second;
}

at::Tensor AdaptedLinearImpl::forward(const at::Tensor& x) {
  const at::Tensor y = base_->forward(x);
  return for_sequences(x, y, [this](int64_t number, const at::Tensor& own, const at::Tensor& sum) {
    const LowRank* const adapter = find(number);
    if (adapter == nullptr) return sum;
    const at::Tensor low = at::linear(own.to(at::kFloat), adapter->a);
    return sum + (at::linear(low, adapter->b) * adapter->scale).to(sum.scalar_type());
  });
}

at::Tensor AdaptedLinearImpl::rows(const at::Tensor& indices) {
  const at::Tensor y = base_->rows(indices);
  return for_sequences(
      indices, y, [this](int64_t number, const at::Tensor& own, const at::Tensor& sum) {
        const LowRank* const adapter = find(number);
        if (adapter == nullptr) return sum;
        const at::Tensor low = at::embedding(adapter->b, own);
        return sum + (at::matmul(low, adapter->a) * adapter->scale).to(sum.scalar_type());
      });
}

int64_t AdaptedLinearImpl::weight_bytes() const {
  int64_t bytes = base_->weight_bytes();
  for (const auto& [number, adapter] : adapters_) {
    bytes += static_cast<int64_t>(adapter.a.nbytes() + adapter.b.nbytes());
  }
  return bytes;
}

at::Tensor AdaptedLinearImpl::dense_weight() const {
  const LowRank* const adapter = find(AdapterScope::only());
  const at::Tensor weight = base_->dense_weight();
  if (adapter == nullptr) return weight;
  return weight + (at::matmul(adapter->b, adapter->a) * adapter->scale).to(weight.scalar_type());
}

void AdaptedLinearImpl::exchange_members(const MemberExchange& exchange) {
  base_ = replace_module("base", exchange.child_of(base_));
}

}  // namespace weft::nn
