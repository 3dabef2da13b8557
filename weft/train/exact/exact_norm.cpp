#include "weft/train/exact/exact_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace weft::train {

double largest_size(std::span<const float> values) {
  // Without their sign floats are ordered as their bits are, above all infinity and what is no
  // number: integers, whose maxima the compiler makes with vectors.
  constexpr int32_t kWithoutSign = 0x7FFFFFFF;
  int32_t most = 0;
  for (const float value : values) {
    most = std::max(most, std::bit_cast<int32_t>(value) & kWithoutSign);
  }
  const auto size = std::bit_cast<float>(most);
  return std::isfinite(size) ? static_cast<double>(size) : std::numeric_limits<double>::infinity();
}

// A number is cut at 2^e by adding 1.5 * 2^(e + 52) and taking it off again. Sums of `count` parts
// below 2^top that are multiples of 2^e stay exact while top + log2(count) is at most e + 52.
ExactSquares::ExactSquares(double largest, int64_t count) {
  constexpr int kDigits = 52;
  int exponent = 0;
  std::frexp(largest * largest, &exponent);
  int spare = 1;
  while ((int64_t{1} << spare) < count) ++spare;
  int top = exponent;
  for (double& cut : cuts_) {
    const int e = top + spare + 1 - kDigits;
    cut = std::ldexp(1.5, e + kDigits);
    top = e;
  }
}

void ExactSquares::add(std::span<const float> values) {
  // Independent sums, so that the compiler can use vectors; their order is of no account.
  constexpr size_t kLanes = 16;
  std::array<std::array<double, kLanes>, 3> sums = {};
  const auto add_one = [&](float value, size_t lane) {
    double rest = static_cast<double>(value) * static_cast<double>(value);
    for (size_t i = 0; i < cuts_.size(); ++i) {
      const double part = (rest + cuts_[i]) - cuts_[i];
      sums[i][lane] += part;
      rest -= part;
    }
  };
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) add_one(values[i + lane], lane);
  }
  for (; i < values.size(); ++i) add_one(values[i], i % kLanes);
  for (size_t level = 0; level < sums_.size(); ++level) {
    for (const double sum : sums[level]) sums_[level] += sum;
  }
}

}  // namespace weft::train
