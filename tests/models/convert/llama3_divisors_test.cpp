#include "weft/models/convert/llama3_divisors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace weft::models {
namespace {

nn::RopeScaling llama3(double factor, double low, double high, int64_t positions) {
  nn::RopeScaling scaling;
  scaling.type = nn::RopeType::kLlama3;
  scaling.factor = factor;
  scaling.low_freq_factor = low;
  scaling.high_freq_factor = high;
  scaling.original_positions = positions;
  return scaling;
}

TEST(Llama3Divisors, AreOneWhereFrequenciesAreKeptAndTheFactorWhereTheyAreDivided) {
  const at::Tensor divisors = llama3_divisors(128, 5e5, llama3(8, 1, 4, 8192));
  ASSERT_EQ(divisors.numel(), 64);
  EXPECT_EQ(divisors[0].item<float>(), 1);
  EXPECT_NEAR(divisors[63].item<float>(), 8, 1e-5);
  // Of a pair in between, by the published formula.
  const double frequency = std::pow(5e5, -32.0 * 2 / 128);
  const double turns = 8192 * frequency / (2 * M_PI);
  const double kept = (turns - 1) / 3;
  ASSERT_TRUE(kept > 0 && kept < 1);
  EXPECT_NEAR(divisors[32].item<float>(), 1 / ((1 - kept) / 8 + kept), 1e-5);
}

TEST(Llama3Divisors, SayTheScalingThatTheyWereMadeOf) {
  struct Case {
    int64_t dim;
    double base;
    nn::RopeScaling scaling;
  };
  // Those of Llama 3.1 and 3.2, and others.
  for (const Case& each : std::vector<Case>{{128, 5e5, llama3(8, 1, 4, 8192)},
                                            {64, 5e5, llama3(32, 1, 4, 8192)},
                                            {8, 500, llama3(8, 1, 4, 16)},
                                            {64, 1e4, llama3(2.5, 1, 3, 1000)}}) {
    const auto found = llama3_from_divisors(llama3_divisors(each.dim, each.base, each.scaling),
                                            each.dim, each.base);
    ASSERT_TRUE(found.has_value()) << each.dim;
    EXPECT_TRUE(*found == each.scaling)
        << found->factor << " " << found->low_freq_factor << " " << found->high_freq_factor << " "
        << found->original_positions;
  }
}

TEST(Llama3Divisors, SayAnEqualScalingWhereTheyLeaveItOpen) {
  // Doubled factors at doubled positions are the same ramp.
  const at::Tensor divisors = llama3_divisors(128, 5e5, llama3(8, 2, 8, 16384));
  EXPECT_TRUE(at::equal(divisors, llama3_divisors(128, 5e5, llama3(8, 1, 4, 8192))));
  EXPECT_TRUE(llama3_from_divisors(divisors, 128, 5e5).value() == llama3(8, 1, 4, 8192));
}

TEST(Llama3Divisors, OfOnesAreNoScaling) {
  EXPECT_TRUE(llama3_from_divisors(at::ones({32}), 64, 1e4).value() == nn::RopeScaling());
}

TEST(Llama3Divisors, OfOtherKindsAreNotTaken) {
  const at::Tensor good = llama3_divisors(64, 1e4, llama3(8, 1, 4, 1000));
  EXPECT_TRUE(llama3_from_divisors(good, 64, 1e4).has_value());
  // Another base than they were made for: the ramp is elsewhere.
  at::Tensor one_off = good.clone();
  one_off[20] *= 1.01;
  for (const at::Tensor& bad : {one_off, at::linspace(1, 8, 32), at::full({32}, 0.5),
                                at::full({32}, std::nan("")), at::full({32}, INFINITY), -good}) {
    EXPECT_FALSE(llama3_from_divisors(bad, 64, 1e4).has_value()) << bad[31];
  }
}

}  // namespace
}  // namespace weft::models
