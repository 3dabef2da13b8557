#include "weft/core/checked.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace weft::core {
namespace {

constexpr uint64_t kMax = UINT64_MAX;

TEST(Checked, ProductsFitOrAreNothing) {
  EXPECT_EQ(checked_mul(0, kMax), 0u);
  EXPECT_EQ(checked_mul(kMax, 1), kMax);
  EXPECT_EQ(checked_mul(uint64_t{1} << 32, (uint64_t{1} << 32) - 1), kMax - 0xFFFF'FFFFu);
  EXPECT_EQ(checked_mul(uint64_t{1} << 32, uint64_t{1} << 32), std::nullopt);
  EXPECT_EQ(checked_mul(kMax, 2), std::nullopt);
}

TEST(Checked, SumsFitOrAreNothing) {
  EXPECT_EQ(checked_add(kMax, 0), kMax);
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_add(kMax, 1), std::nullopt);
}

TEST(Checked, AlignUpNeverWrapsToZero) {
  EXPECT_EQ(checked_align_up(0, 32), 0u);
  EXPECT_EQ(checked_align_up(1, 32), 32u);
  EXPECT_EQ(checked_align_up(32, 32), 32u);
  EXPECT_EQ(checked_align_up(33, 1), 33u);
  EXPECT_EQ(checked_align_up(kMax - 31, 32), kMax - 31);
  EXPECT_EQ(checked_align_up(kMax - 30, 32), std::nullopt);
  EXPECT_EQ(checked_align_up(kMax, 32), std::nullopt);
}

}  // namespace
}  // namespace weft::core
