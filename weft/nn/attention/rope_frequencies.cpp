#include "weft/nn/attention/rope_frequencies.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/core/error.h"

namespace weft::nn {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

at::Tensor powers(int64_t dim, double base) {
  const auto floats = at::TensorOptions().dtype(at::kFloat);
  return at::pow(base, at::arange(0, dim, 2, floats) / static_cast<double>(dim));
}

double dynamic_base(int64_t dim, double base, const RopeScaling& scaling, int64_t length) {
  const auto original = static_cast<double>(scaling.original_positions);
  const double longest = std::max(static_cast<double>(length), original);
  const double growth = scaling.factor * longest / original - (scaling.factor - 1);
  return base * std::pow(growth, static_cast<double>(dim) / static_cast<double>(dim - 2));
}

at::Tensor llama3_frequencies(const at::Tensor& plain, const RopeScaling& scaling) {
  const auto original = static_cast<double>(scaling.original_positions);
  const double low = scaling.low_freq_factor, high = scaling.high_freq_factor;
  const at::Tensor wavelengths = kTwoPi / plain;
  const at::Tensor divided = at::where(wavelengths > original / low, plain / scaling.factor, plain);
  const at::Tensor smooth = (original / wavelengths - low) / (high - low);
  const at::Tensor between = (1 - smooth) * divided / scaling.factor + smooth * divided;
  const at::Tensor is_between =
      at::logical_and(wavelengths >= original / high, wavelengths <= original / low);
  return at::where(is_between, between, divided);
}

// The pair of features that turns this many times over the original positions.
double pair_of_rotations(double rotations, int64_t dim, double base, const RopeScaling& scaling) {
  const double turn = static_cast<double>(scaling.original_positions) / (rotations * kTwoPi);
  return static_cast<double>(dim) * std::log(turn) / (2 * std::log(base));
}

at::Tensor yarn_frequencies(int64_t dim, double base, const RopeScaling& scaling) {
  double low = pair_of_rotations(scaling.beta_fast, dim, base, scaling);
  double high = pair_of_rotations(scaling.beta_slow, dim, base, scaling);
  if (scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  // A ramp of no width is a step.
  if (low == high) high += 0.001;
  const auto floats = at::TensorOptions().dtype(at::kFloat);
  const at::Tensor ramp = ((at::arange(dim / 2, floats) - low) / (high - low)).clamp(0, 1);
  const at::Tensor kept = 1 - ramp;
  const at::Tensor power = powers(dim, base);
  return 1.0 / (scaling.factor * power) * (1 - kept) + 1.0 / power * kept;
}

at::Tensor proportional_frequencies(int64_t dim, double base, const RopeScaling& scaling) {
  at::Tensor frequencies = 1.0 / powers(dim, base) / scaling.factor;
  const auto turned = static_cast<int64_t>(scaling.turned_part * static_cast<double>(dim) / 2);
  frequencies.narrow(0, turned, dim / 2 - turned).zero_();
  return frequencies;
}

at::Tensor long_rope_frequencies(int64_t dim, double base, const RopeScaling& scaling,
                                 int64_t length) {
  const auto& factors =
      length > scaling.original_positions ? scaling.long_factors : scaling.short_factors;
  core::check<core::ConfigError>(static_cast<int64_t>(factors.size()) == dim / 2,
                                 "nn.rope_frequencies: ", factors.size(),
                                 " factors of frequencies, expected ", dim / 2);
  return 1.0 / (at::tensor(factors, at::kFloat) * powers(dim, base));
}

double yarn_attention_factor(const RopeScaling& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (scaling.mscale == 0 || scaling.mscale_all_dim == 0) return yarn_sharpening(scaling.factor, 1);
  return yarn_sharpening(scaling.factor, scaling.mscale) /
         yarn_sharpening(scaling.factor, scaling.mscale_all_dim);
}

}  // namespace

RopeFrequencies rope_frequencies(int64_t dim, double base, const RopeScaling& scaling,
                                 int64_t length) {
  switch (scaling.type) {
    case RopeType::kDefault:
      return {1.0 / powers(dim, base)};
    case RopeType::kLinear:
      return {1.0 / powers(dim, base) / scaling.factor};
    case RopeType::kDynamic:
      return {1.0 / powers(dim, dynamic_base(dim, base, scaling, length))};
    case RopeType::kLlama3:
      return {llama3_frequencies(1.0 / powers(dim, base), scaling)};
    case RopeType::kYarn:
      return {yarn_frequencies(dim, base, scaling), yarn_attention_factor(scaling)};
    case RopeType::kProportional:
      return {proportional_frequencies(dim, base, scaling)};
    case RopeType::kLongRope:
      return {long_rope_frequencies(dim, base, scaling, length),
              scaling.attention_factor.value_or(long_rope_sharpening(scaling))};
  }
  core::fail<core::InternalError>("nn.rope_frequencies: unknown type");
}

}  // namespace weft::nn
