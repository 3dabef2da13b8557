#include "weft/train/exact/exact_norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace weft::train {
namespace {

double sum_in_parts(const std::vector<float>& numbers, size_t part) {
  const auto count = std::ssize(numbers);
  ExactSquares whole(largest_size(numbers), count);
  for (size_t start = 0; start < numbers.size(); start += part) {
    ExactSquares own(largest_size(numbers), count);
    own.add(std::span(numbers).subspan(start, std::min(part, numbers.size() - start)));
    for (size_t level = 0; level < own.sums().size(); ++level) {
      whole.sums()[level] += own.sums()[level];
    }
  }
  return whole.total();
}

TEST(ExactNorm, HasTheSameBitsInAnyPartsAndOrder) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-30, 20);
  std::vector<float> numbers(10'007);
  for (float& number : numbers) number = std::ldexp(normal(random), exponent(random));
  const double expected = sum_in_parts(numbers, numbers.size());
  for (const size_t part : {1, 3, 16, 1000}) EXPECT_EQ(sum_in_parts(numbers, part), expected);
  std::shuffle(numbers.begin(), numbers.end(), random);
  EXPECT_EQ(sum_in_parts(numbers, 77), expected);
  double plain = 0;
  for (const float number : numbers) plain += std::pow(static_cast<double>(number), 2);
  EXPECT_NEAR(expected, plain, 1e-12 * plain);
}

TEST(ExactNorm, KeepsSmallNumbersBesideALargeOne) {
  std::vector<float> numbers(1 << 16, 0x1p-12F);
  numbers.front() = 1;
  EXPECT_EQ(sum_in_parts(numbers, 100), 1 + 65535 * 0x1p-24);
  EXPECT_EQ(sum_in_parts({0, 0}, 1), 0);
}

TEST(ExactNorm, SaysWhereANumberIsNotFinite) {
  EXPECT_EQ(largest_size(std::vector<float>{-3, 2}), 3);
  EXPECT_TRUE(std::isinf(largest_size(std::vector<float>{1, std::nanf("")})));
  EXPECT_TRUE(std::isinf(largest_size(std::vector<float>{std::numeric_limits<float>::infinity()})));
}

}  // namespace
}  // namespace weft::train
