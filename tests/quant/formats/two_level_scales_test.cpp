#include "weft/quant/formats/two_level_scales.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

namespace weft::quant {
namespace {

at::Tensor product(const TwoLevelScales& factors, int64_t run) {
  const at::Tensor shared = factors.shared.repeat_interleave(run, 1);
  return shared.narrow(1, 0, factors.codes.size(1)) * factors.codes.to(at::kFloat);
}

TEST(TwoLevelScales, AreFoundWhereScalesAreProducts) {
  at::manual_seed(3);
  const at::Tensor codes = at::randint(-128, 128, {40, 20}, at::kFloat);
  const at::Tensor shared = at::randn({40, 3}).to(at::kHalf).to(at::kFloat);
  const at::Tensor scales = codes * shared.repeat_interleave(8, 1).narrow(1, 0, 20);
  const auto found = find_two_levels(scales, 8);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->codes.scalar_type(), at::kChar);
  EXPECT_EQ(found->shared.sizes(), at::IntArrayRef({40, 3}));
  EXPECT_TRUE(at::equal(product(*found, 8), scales));
}

TEST(TwoLevelScales, GoFrom128OfOneSignTo127OfTheOther) {
  for (const double sign : {1.0, -1.0}) {
    const at::Tensor scales = at::tensor({-128.0, 127.0, 0.0, 1.0}).view({1, 4}).to(at::kFloat);
    const auto found = find_two_levels(scales * (sign * 0.25), 4);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->codes[0][0].item<int>(), -128);
    EXPECT_TRUE(at::equal(product(*found, 4), scales * (sign * 0.25)));
  }
}

TEST(TwoLevelScales, OfZerosAreZeros) {
  const auto found = find_two_levels(at::zeros({2, 4}), 4);
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(at::equal(product(*found, 4), at::zeros({2, 4})));
}

TEST(TwoLevelScales, AreNotFoundInOthers) {
  at::Tensor scales = at::ones({3, 8});
  EXPECT_TRUE(find_two_levels(scales, 4).has_value());
  for (const double value : {129.0, 1.0 / 129, 128.5, 0.1, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    at::Tensor other = scales.clone();
    other[2][6] = value;
    EXPECT_FALSE(find_two_levels(other, 4).has_value()) << value;
  }
  scales[1][2] = 128;
  EXPECT_TRUE(find_two_levels(scales, 4).has_value());
  scales[1][3] = -128;
  EXPECT_FALSE(find_two_levels(scales, 4).has_value());
}

}  // namespace
}  // namespace weft::quant
