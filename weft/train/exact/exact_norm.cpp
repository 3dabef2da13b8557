#include "weft/train/exact/exact_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace weft::train {

double largest_size(std::span<const float> values) {
  float most = 0;
  bool is_finite = true;
  for (const float value : values) {
    is_finite = is_finite && std::isfinite(value);
    most = std::max(most, std::abs(value));
  }
  return is_finite ? static_cast<double>(most) : std::numeric_limits<double>::infinity();
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
