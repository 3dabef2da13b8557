#include "weft/train/psdp/square_sum.h"

#include <array>
#include <cstddef>
#include <numeric>

namespace weft::train {

double square_sum(std::span<const float> values) {
  // Independent sums, so that the compiler can use vectors.
  constexpr size_t kLanes = 16;
  std::array<double, kLanes> sums = {};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (; i < values.size(); ++i) {
    const auto value = static_cast<double>(values[i]);
    sums[i % kLanes] += value * value;
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace weft::train
