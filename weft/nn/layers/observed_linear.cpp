#include "weft/nn/layers/observed_linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/zeros.h>

#include <utility>

namespace weft::nn {

InputSums::InputSums(int64_t in, bool takes_products) : squares_(at::zeros({in}, at::kDouble)) {
  if (takes_products) products_ = at::zeros({in, in}, at::kFloat);
}

void InputSums::add(const at::Tensor& x) {
  const at::Tensor rows = x.detach().reshape({-1, x.size(-1)}).to(at::kFloat);
  squares_ += rows.square().sum(0).to(at::kDouble);
  count_ += rows.size(0);
}

void InputSums::add_products(const at::Tensor& x, const at::Tensor& counts) {
  const at::Tensor rows = x.detach().reshape({-1, x.size(-1)}).to(at::kFloat);
  products_.addmm_(rows.t(), rows * counts.unsqueeze(1));
}

void InputSums::add_to_diagonal(const at::Tensor& counts) { products_.diagonal().add_(counts); }

ObservedLinearImpl::ObservedLinearImpl(std::shared_ptr<LinearLike> inner, bool takes_products)
    : inner_(register_module("inner", std::move(inner))),
      sums_(inner_->in_features(), takes_products) {}

at::Tensor ObservedLinearImpl::forward(const at::Tensor& x) {
  sums_.add(x);
  if (!sums_.products().defined() || !at::GradMode::is_enabled()) return inner_->forward(x);
  const at::Tensor input = x.requires_grad() ? x : x.detach().requires_grad_(true);
  const at::Tensor y = inner_->forward(input);
  y.register_hook([this, rows = x.detach()](const at::Tensor& gradient) {
    const at::Tensor flat = gradient.detach().reshape({-1, gradient.size(-1)}).to(at::kFloat);
    sums_.add_products(rows, flat.square().mean(1));
  });
  return y;
}

at::Tensor ObservedLinearImpl::rows(const at::Tensor& indices) {
  const at::Tensor found = inner_->rows(indices);
  if (!sums_.products().defined() || !at::GradMode::is_enabled()) return found;
  const at::Tensor leaf = found.detach().requires_grad_(true);
  leaf.register_hook([this](const at::Tensor& gradient) {
    const at::Tensor flat = gradient.detach().reshape({-1, gradient.size(-1)}).to(at::kFloat);
    sums_.add_to_diagonal(flat.square().sum(0));
  });
  // A leaf is not to be changed in place.
  return leaf.alias();
}

}  // namespace weft::nn
