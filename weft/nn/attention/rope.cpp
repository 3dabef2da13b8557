#include "weft/nn/attention/rope.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <string>
#include <utility>

#include "weft/core/error.h"

namespace weft::nn {

using core::check;
using core::ConfigError;
using core::ShapeError;

namespace {

// x [..., dim] with each pair's second feature, minus it, for the first and the first for the
// second.
at::Tensor swapped_pairs(const at::Tensor& x, bool are_neighbours) {
  const int64_t half = x.size(-1) / 2;
  if (!are_neighbours) return at::cat({x.narrow(-1, half, half).neg(), x.narrow(-1, 0, half)}, -1);
  const at::Tensor pairs = x.unflatten(-1, {half, 2});
  return at::stack({pairs.select(-1, 1).neg(), pairs.select(-1, 0)}, -1).flatten(-2);
}

// Of a number for each pair, one for each feature.
at::Tensor for_features(const at::Tensor& angles, bool are_neighbours) {
  if (!are_neighbours) return angles;
  const int64_t half = angles.size(-1) / 2;
  return angles.narrow(-1, 0, half).repeat_interleave(2, -1);
}

}  // namespace

RopeAngles::RopeAngles(at::Tensor cos_T1H, at::Tensor sin_T1H, bool turns_neighbours)
    : cos_T1H_(std::move(cos_T1H)),
      sin_T1H_(std::move(sin_T1H)),
      turns_neighbours_(turns_neighbours) {}

RopeAngles RopeAngles::none(int64_t tokens) {
  const at::Tensor nothing_T10 = at::empty({tokens, 1, 0}, at::kFloat);
  return {nothing_T10, nothing_T10};
}

bool RopeAngles::fits(const at::Tensor& x_BTnH) const {
  return x_BTnH.dim() == 4 && x_BTnH.size(1) == cos_T1H_.size(-3) &&
         (cos_T1H_.dim() == 3 || x_BTnH.size(0) == cos_T1H_.size(0)) &&
         x_BTnH.size(3) >= cos_T1H_.size(-1);
}

at::Tensor RopeAngles::apply(const at::Tensor& x_BTnH) const {
  const int64_t dim = cos_T1H_.size(-1);
  check<ShapeError>(fits(x_BTnH), "nn.RopeAngles: input ", core::list_text(x_BTnH.sizes()),
                    ", expected [", cos_T1H_.dim() == 3 ? "B" : std::to_string(cos_T1H_.size(0)),
                    ", ", cos_T1H_.size(-3), ", heads, at least ", dim, "]");
  if (dim == 0) return x_BTnH;
  const bool is_partial = x_BTnH.size(3) > dim;
  const at::Tensor x = is_partial ? x_BTnH.narrow(-1, 0, dim) : x_BTnH;
  const at::Tensor swapped = swapped_pairs(x, turns_neighbours_);
  const auto dtype = x.scalar_type();
  const at::Tensor y = x * for_features(cos_T1H_, turns_neighbours_).to(dtype) +
                       swapped * for_features(sin_T1H_, turns_neighbours_).to(dtype);
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
    : Rope(RopeOptions{dim, base, max_positions}) {}

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
  return angles_at(at::arange(start, length, at::kFloat), length);
}

RopeAngles Rope::angles(const at::Tensor& positions_BT) const {
  check<ShapeError>(positions_BT.dim() == 2 && positions_BT.scalar_type() == at::kLong &&
                        positions_BT.numel() > 0,
                    "nn.Rope: positions ", c10::toString(positions_BT.scalar_type()), " ",
                    core::list_text(positions_BT.sizes()), ", expected int64 [B, T]");
  const auto [lowest, highest] = at::aminmax(positions_BT);
  const int64_t length = highest.item<int64_t>() + 1;
  check<ShapeError>(lowest.item<int64_t>() >= 0 && length <= max_positions(), "nn.Rope: positions ",
                    lowest.item<int64_t>(), " to ", length - 1, ", expected 0 to ",
                    max_positions() - 1);
  return angles_at(positions_BT.to(at::kFloat), length);
}

RopeAngles Rope::angles_at(const at::Tensor& positions, int64_t length) const {
  const RopeType type = options_.scaling.type;
  const bool depends_on_length = type == RopeType::kDynamic || type == RopeType::kLongRope;
  const bool has_grown = depends_on_length && length > options_.scaling.original_positions;
  const RopeFrequencies used = has_grown ? frequencies(length) : short_;
  const at::Tensor turned = positions.unsqueeze(-1) * used.values;
  const at::Tensor both_T1H = at::cat({turned, turned}, -1).unsqueeze(-2);
  return {both_T1H.cos() * used.attention_factor, both_T1H.sin() * used.attention_factor,
          options_.turns_neighbours};
}

at::Tensor Rope::apply(const at::Tensor& x_BTnH, int64_t start) const {
  return angles(start, x_BTnH.size(1)).apply(x_BTnH);
}

}  // namespace weft::nn
