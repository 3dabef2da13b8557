#include "weft/nn/attention/rope_scaling.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/core/error.h"

namespace weft::nn {
namespace {

using core::check;
using core::ConfigError;

constexpr double kTwoPi = 2 * std::numbers::pi;

constexpr std::array<std::pair<std::string_view, RopeType>, 5> kTypes = {{
    {"default", RopeType::kDefault},
    {"linear", RopeType::kLinear},
    {"dynamic", RopeType::kDynamic},
    {"llama3", RopeType::kLlama3},
    {"yarn", RopeType::kYarn},
}};

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

double yarn_sharpening(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double yarn_attention_factor(const RopeScaling& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  if (scaling.mscale == 0 || scaling.mscale_all_dim == 0) return yarn_sharpening(scaling.factor, 1);
  return yarn_sharpening(scaling.factor, scaling.mscale) /
         yarn_sharpening(scaling.factor, scaling.mscale_all_dim);
}

void check_number(bool ok, const char* name, double value, const char* expected,
                  const std::string& where) {
  check<ConfigError>(ok && std::isfinite(value), where, ": rope scaling: ", name, " is ", value,
                     ", expected ", expected);
}

}  // namespace

RopeType rope_type_of(const std::string& name, const std::string& where) {
  std::vector<std::string_view> known;
  for (const auto& [text, type] : kTypes) {
    if (text == name) return type;
    known.push_back(text);
  }
  core::fail<ConfigError>(where, ": rope scaling ", core::quote(name),
                          " is not supported, expected one of ", core::list_text(known));
}

void check_rope_scaling(const RopeScaling& scaling, const std::string& where) {
  if (scaling.type == RopeType::kDefault) return;
  check_number(scaling.factor >= 1, "factor", scaling.factor, "a number of at least 1", where);
  if (scaling.type == RopeType::kLinear) return;
  check<ConfigError>(scaling.original_positions >= 1, where,
                     ": rope scaling: original_max_position_embeddings is ",
                     scaling.original_positions, ", expected at least 1");
  const double low = scaling.low_freq_factor, high = scaling.high_freq_factor;
  if (scaling.type == RopeType::kLlama3) {
    check_number(low > 0, "low_freq_factor", low, "a positive number", where);
    check_number(high > low, "high_freq_factor", high, "more than low_freq_factor", where);
  }
  if (scaling.type != RopeType::kYarn) return;
  check_number(scaling.beta_slow > 0, "beta_slow", scaling.beta_slow, "a positive number", where);
  check_number(scaling.beta_fast >= scaling.beta_slow, "beta_fast", scaling.beta_fast,
               "at least beta_slow", where);
  check_number(scaling.mscale >= 0, "mscale", scaling.mscale, "no negative number", where);
  check_number(scaling.mscale_all_dim >= 0, "mscale_all_dim", scaling.mscale_all_dim,
               "no negative number", where);
  const double attention = scaling.attention_factor.value_or(1);
  check_number(attention > 0, "attention_factor", attention, "a positive number", where);
}

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
  }
  core::fail<core::InternalError>("nn.rope_frequencies: unknown type");
}

}  // namespace weft::nn
