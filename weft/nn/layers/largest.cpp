#include "weft/nn/layers/largest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace weft::nn {
namespace {

// The largest number of a run; NaN if one is NaN or plus infinity. Lanes of their own, so that it
// takes the compiler's vectors.
float largest_of_run(std::span<const float> numbers) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> most, broken = {};
  most.fill(-std::numeric_limits<float>::infinity());
  const auto take = [&](float number, size_t lane) {
    most[lane] = number > most[lane] ? number : most[lane];
    // 0 for all numbers and minus infinity, NaN for NaN and infinity.
    const float least = std::numeric_limits<float>::lowest();
    broken[lane] += 0 * (number < least ? least : number);
  };
  size_t i = 0;
  for (; i + kLanes <= numbers.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) take(numbers[i + lane], lane);
  }
  for (; i < numbers.size(); ++i) take(numbers[i], 0);
  const float sum = std::accumulate(broken.begin(), broken.end(), 0.0F);
  return std::isnan(sum) ? sum : *std::ranges::max_element(most);
}

}  // namespace

// Its place is looked for in its run alone.
Largest largest(std::span<const float> numbers) {
  constexpr size_t kRun = 1024;
  float most = -std::numeric_limits<float>::infinity();
  size_t place = 0;
  for (size_t start = 0; start < numbers.size(); start += kRun) {
    const float here =
        largest_of_run(numbers.subspan(start, std::min(kRun, numbers.size() - start)));
    if (std::isnan(here)) return {here, static_cast<int64_t>(start)};
    if (here <= most) continue;
    most = here;
    place = start;
  }
  const auto run = numbers.subspan(place);
  place += static_cast<size_t>(std::ranges::find(run, most) - run.begin());
  return {most, static_cast<int64_t>(std::isinf(most) ? 0 : place)};
}

Largest largest(std::span<const Largest> parts) {
  Largest best;
  for (const Largest& part : parts) {
    if (std::isnan(part.value)) return part;
    if (part.value > best.value) best = part;
  }
  return best;
}

}  // namespace weft::nn
