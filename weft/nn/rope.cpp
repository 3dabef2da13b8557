#include "weft/nn/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/outer.h>

#include <cmath>
#include <utility>

#include "weft/core/error.h"

namespace weft::nn {

using core::check;
using core::ConfigError;
using core::ShapeError;

RopeAngles::RopeAngles(at::Tensor cos_T1H, at::Tensor sin_T1H)
    : cos_T1H_(std::move(cos_T1H)), sin_T1H_(std::move(sin_T1H)) {}

at::Tensor RopeAngles::apply(const at::Tensor& x_BTnH) const {
  const int64_t dim = cos_T1H_.size(2), half = dim / 2;
  check<ShapeError>(
      x_BTnH.dim() == 4 && x_BTnH.size(1) == cos_T1H_.size(0) && x_BTnH.size(3) >= dim,
      "nn.RopeAngles: input ", core::list_text(x_BTnH.sizes()), ", expected [B, ", cos_T1H_.size(0),
      ", heads, at least ", dim, "]");
  const bool is_partial = x_BTnH.size(3) > dim;
  const at::Tensor x = is_partial ? x_BTnH.narrow(-1, 0, dim) : x_BTnH;
  const at::Tensor swapped = at::cat({x.narrow(-1, half, half).neg(), x.narrow(-1, 0, half)}, -1);
  const auto dtype = x.scalar_type();
  const at::Tensor y = x * cos_T1H_.to(dtype) + swapped * sin_T1H_.to(dtype);
  return is_partial ? at::cat({y, x_BTnH.narrow(-1, dim, x_BTnH.size(3) - dim)}, -1) : y;
}

Rope::Rope(RopeOptions options) : options_(std::move(options)) {
  const int64_t dim = options_.dim;
  check<ConfigError>(dim > 0 && dim % 2 == 0, "nn.Rope: head_dim ", dim,
                     ", expected a positive even number");
  check<ConfigError>(std::isfinite(options_.base) && options_.base > 0, "nn.Rope: base ",
                     options_.base, ", expected a positive finite number");
  check<ConfigError>(options_.max_positions > 0, "nn.Rope: ", options_.max_positions,
                     " positions, expected at least 1");
  check_rope_scaling(options_.scaling, "nn.Rope");
  check<ConfigError>(options_.scaling.type != RopeType::kDynamic || dim > 2,
                     "nn.Rope: head_dim 2 with dynamic scaling, expected more than 2");
  check<ShapeError>(!options_.divisors.defined() || options_.divisors.numel() == dim / 2,
                    "nn.Rope: ", options_.divisors.defined() ? options_.divisors.numel() : 0,
                    " frequency divisors, expected ", dim / 2);
  short_ = frequencies(1);
}

Rope::Rope(int64_t dim, double base, int64_t max_positions)
    : Rope(RopeOptions{dim, base, max_positions, {}, {}}) {}

RopeFrequencies Rope::frequencies(int64_t length) const {
  RopeFrequencies found = rope_frequencies(options_.dim, options_.base, options_.scaling, length);
  if (options_.divisors.defined()) {
    found.values = found.values / options_.divisors.to(at::kFloat).flatten();
  }
  return found;
}

RopeAngles Rope::angles(int64_t start, int64_t tokens) const {
  const int64_t length = start + tokens;
  check<ShapeError>(start >= 0 && length <= max_positions(), "nn.Rope: positions ", start, " to ",
                    length, ", expected at most ", max_positions(),
                    "; use a shorter prompt or a larger context");
  const bool has_grown =
      options_.scaling.type == RopeType::kDynamic && length > options_.scaling.original_positions;
  const RopeFrequencies used = has_grown ? frequencies(length) : short_;
  const auto floats = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor turned = at::outer(at::arange(start, length, floats), used.values);
  const at::Tensor both_T1H = at::cat({turned, turned}, -1).unsqueeze(1);
  return {both_T1H.cos() * used.attention_factor, both_T1H.sin() * used.attention_factor};
}

at::Tensor Rope::apply(const at::Tensor& x_BTnH, int64_t start) const {
  return angles(start, x_BTnH.size(1)).apply(x_BTnH);
}

}  // namespace weft::nn
