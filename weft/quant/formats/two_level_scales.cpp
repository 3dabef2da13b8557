#include "weft/quant/formats/two_level_scales.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "weft/quant/view.h"

namespace weft::quant {
namespace {

constexpr float kMostCode = 128;

// Of numbers that are not negative and, the greater over the smaller, at most about kMostCode: a
// quotient of double has bits enough for the exact rest.
float rest_of(float value, float divisor) {
  const auto times = static_cast<int64_t>(static_cast<double>(value) / divisor);
  return static_cast<float>(value - static_cast<double>(times) * divisor);
}

// Euclid's algorithm; 0 if no divisor of all is at least `least`.
float common_divisor(std::span<const float> values, float least) {
  float divisor = 0;
  for (const float each : values) {
    float value = std::exchange(divisor, std::fabs(each));
    while (value != 0) {
      if (value < least) return 0;
      divisor = std::exchange(value, rest_of(divisor, value));
    }
  }
  return divisor;
}

// One run; whether it has factors.
bool split(std::span<const float> values, int8_t* codes, float& shared) {
  float largest = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
    if (std::fabs(value) > std::fabs(largest)) largest = value;
  }
  std::fill_n(codes, values.size(), int8_t{0});
  shared = 0;
  if (largest == 0) return true;
  const float divisor = common_divisor(values, std::fabs(largest) / kMostCode);
  if (divisor == 0) return false;
  // The largest one's code is negative, as int8 goes one further there.
  shared = std::copysign(divisor, -largest);
  for (const float value : values) {
    const float code = std::nearbyint(value / shared);
    if (code < -kMostCode || code >= kMostCode || code * shared != value) return false;
    *codes++ = static_cast<int8_t>(code);
  }
  return true;
}

}  // namespace

std::optional<TwoLevelScales> find_two_levels(const at::Tensor& scales, int64_t run) {
  const at::Tensor wide = scales.to(at::kFloat).contiguous();
  const int64_t out = wide.size(0), groups = wide.size(1), runs = (groups + run - 1) / run;
  TwoLevelScales found{at::empty({out, groups}, at::kChar), at::empty({out, runs})};
  const auto* from = wide.const_data_ptr<float>();
  auto* const codes = found.codes.mutable_data_ptr<int8_t>();
  auto* const shared = found.shared.mutable_data_ptr<float>();
  std::atomic<bool> has_all = true;
  at::parallel_for(0, out, rows_per_thread(8 * groups), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * runs; i < end * runs && has_all; ++i) {
      const int64_t row = i / runs, first = i % runs * run, count = std::min(run, groups - first);
      const std::span values(from + row * groups + first, static_cast<size_t>(count));
      if (!split(values, codes + row * groups + first, shared[i])) has_all = false;
    }
  });
  if (!has_all) return std::nullopt;
  return found;
}

}  // namespace weft::quant
