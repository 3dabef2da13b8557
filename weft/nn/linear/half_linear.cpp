#include "weft/nn/linear/half_linear.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/linear/linear_parts.h"

namespace weft::nn {
namespace {

constexpr char kHalfLinear[] = "nn.HalfLinear";
// Numbers that are widened at a time: 2 MiB, which a core's cache holds until they are multiplied.
constexpr int64_t kWidenedNumbers = int64_t{1} << 19;

// x_SD w_FD^T without a gradient.
at::Tensor widened_product(const at::Tensor& x_SD, const at::Tensor& w_FD) {
  const int64_t F = w_FD.size(0);
  const int64_t most = std::max<int64_t>(1, kWidenedNumbers / std::max<int64_t>(1, w_FD.size(1)));
  at::Tensor y_SF = at::empty({x_SD.size(0), F}, x_SD.options());
  for (int64_t start = 0; start < F; start += most) {
    const int64_t length = std::min(most, F - start);
    at::Tensor part = y_SF.narrow(1, start, length);
    at::mm_out(part, x_SD, w_FD.narrow(0, start, length).to(at::kFloat).t());
  }
  return y_SF;
}

}  // namespace

HalfLinearImpl::HalfLinearImpl(at::Tensor weight_in, at::Tensor bias_in) {
  core::check<core::ShapeError>(weight_in.dim() == 2, kHalfLinear, ": weight ",
                                core::list_text(weight_in.sizes()), ", expected [out, in]");
  const at::ScalarType dtype = weight_in.scalar_type();
  core::check<core::ConfigError>(dtype == at::kHalf || dtype == at::kBFloat16, kHalfLinear,
                                 ": weight of ", c10::toString(dtype),
                                 ", expected Half or BFloat16; use DenseLinear");
  check_bias(bias_in, weight_in.size(0), kHalfLinear);
  weight = register_buffer("weight", std::move(weight_in));
  if (bias_in.defined()) bias = register_buffer("bias", std::move(bias_in));
}

at::Tensor HalfLinearImpl::forward(const at::Tensor& x) {
  check_input(x, in_features(), kHalfLinear);
  const at::Tensor wide = x.to(at::kFloat);
  at::Tensor y;
  if (at::GradMode::is_enabled() && x.requires_grad()) {
    y = at::linear(wide, dense_weight());
  } else {
    auto shape = x.sizes().vec();
    shape.back() = out_features();
    y = widened_product(wide.reshape({-1, in_features()}), weight).view(shape);
  }
  return (bias.defined() ? y + bias : y).to(x.scalar_type());
}

at::Tensor HalfLinearImpl::rows(const at::Tensor& indices) {
  return at::embedding(weight, indices).to(at::kFloat);
}

at::Tensor HalfLinearImpl::dense_weight() const { return weight.to(at::kFloat); }

}  // namespace weft::nn
