#include "weft/nn/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>

#include <cmath>

#include "weft/core/error.h"

namespace weft::nn {

using core::check;
using core::ConfigError;

Rope::Rope(int64_t head_dim, double base, int64_t max_positions) {
  check<ConfigError>(head_dim > 0 && head_dim % 2 == 0, "nn.Rope: head_dim ", head_dim,
                     ", expected a positive even number");
  check<ConfigError>(std::isfinite(base) && base > 0, "nn.Rope: base ", base,
                     ", expected a positive finite number");
  check<ConfigError>(max_positions > 0, "nn.Rope: ", max_positions,
                     " positions, expected at least 1");
  const auto floats = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor exponents = at::arange(0, head_dim, 2, floats) / static_cast<double>(head_dim);
  const at::Tensor frequencies = 1.0 / at::pow(base, exponents);
  const at::Tensor angles = at::outer(at::arange(max_positions, floats), frequencies);
  const at::Tensor both = at::cat({angles, angles}, -1);
  cos_SH_ = both.cos();
  sin_SH_ = both.sin();
}

at::Tensor Rope::apply(const at::Tensor& x_BTnH, int64_t start) const {
  const int64_t tokens = x_BTnH.size(1);
  const int64_t half = x_BTnH.size(3) / 2;
  check<core::ShapeError>(start >= 0 && start + tokens <= max_positions(), "nn.Rope: positions ",
                          start, " to ", start + tokens, ", expected at most ", max_positions(),
                          "; use a shorter prompt or a larger context");
  const at::Tensor cos_T1H = cos_SH_.narrow(0, start, tokens).unsqueeze(1).to(x_BTnH.scalar_type());
  const at::Tensor sin_T1H = sin_SH_.narrow(0, start, tokens).unsqueeze(1).to(x_BTnH.scalar_type());
  const at::Tensor swapped =
      at::cat({x_BTnH.narrow(-1, half, half).neg(), x_BTnH.narrow(-1, 0, half)}, -1);
  return x_BTnH * cos_T1H + swapped * sin_T1H;
}

}  // namespace weft::nn
