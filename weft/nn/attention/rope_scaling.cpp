#include "weft/nn/attention/rope_scaling.h"

#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/core/error.h"

namespace weft::nn {
namespace {

using core::check;
using core::ConfigError;

constexpr std::array<std::pair<std::string_view, RopeType>, 6> kTypes = {{
    {"default", RopeType::kDefault},
    {"linear", RopeType::kLinear},
    {"dynamic", RopeType::kDynamic},
    {"llama3", RopeType::kLlama3},
    {"yarn", RopeType::kYarn},
    {"longrope", RopeType::kLongRope},
}};

void check_number(bool ok, const char* name, double value, const char* expected,
                  const std::string& where) {
  check<ConfigError>(ok && std::isfinite(value), where, ": rope scaling: ", name, " is ", value,
                     ", expected ", expected);
}

void check_lists(const RopeScaling& scaling, const std::string& where) {
  check<ConfigError>(scaling.short_factors.size() == scaling.long_factors.size(), where,
                     ": rope scaling: ", scaling.short_factors.size(), " short factors and ",
                     scaling.long_factors.size(), " long ones, expected as many of both");
  for (const auto* list : {&scaling.short_factors, &scaling.long_factors}) {
    const char* name = list == &scaling.short_factors ? "short_factor" : "long_factor";
    for (const double factor : *list) {
      check_number(factor > 0, name, factor, "positive numbers", where);
    }
  }
}

}  // namespace

double yarn_sharpening(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double long_rope_sharpening(const RopeScaling& scaling) {
  if (scaling.factor <= 1) return 1;
  const auto original = static_cast<double>(scaling.original_positions);
  return std::sqrt(1 + std::log(scaling.factor) / std::log(original));
}

double latent_sharpening(const RopeScaling& scaling) {
  if (scaling.type != RopeType::kYarn || scaling.mscale_all_dim == 0) return 1;
  const double once = yarn_sharpening(scaling.factor, scaling.mscale_all_dim);
  return once * once;
}

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
  if (scaling.type == RopeType::kProportional) {
    const double part = scaling.turned_part;
    return check_number(part > 0 && part <= 1, "partial_rotary_factor", part,
                        "more than 0 and at most 1", where);
  }
  // Longrope divides by their logarithm.
  const int64_t least = scaling.type == RopeType::kLongRope ? 2 : 1;
  check<ConfigError>(scaling.original_positions >= least, where,
                     ": rope scaling: original_max_position_embeddings is ",
                     scaling.original_positions, ", expected at least ", least);
  const double low = scaling.low_freq_factor, high = scaling.high_freq_factor;
  if (scaling.type == RopeType::kLlama3) {
    check_number(low > 0, "low_freq_factor", low, "a positive number", where);
    check_number(high > low, "high_freq_factor", high, "more than low_freq_factor", where);
  }
  if (scaling.type == RopeType::kLongRope) check_lists(scaling, where);
  const double attention = scaling.attention_factor.value_or(1);
  check_number(attention > 0, "attention_factor", attention, "a positive number", where);
  if (scaling.type != RopeType::kYarn) return;
  check_number(scaling.beta_slow > 0, "beta_slow", scaling.beta_slow, "a positive number", where);
  check_number(scaling.beta_fast >= scaling.beta_slow, "beta_fast", scaling.beta_fast,
               "at least beta_slow", where);
  check_number(scaling.mscale >= 0, "mscale", scaling.mscale, "no negative number", where);
  check_number(scaling.mscale_all_dim >= 0, "mscale_all_dim", scaling.mscale_all_dim,
               "no negative number", where);
}

}  // namespace weft::nn
