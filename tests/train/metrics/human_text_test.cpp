#include "weft/train/metrics/human_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace weft::train {
namespace {

TEST(HumanText, WritesCountsInThreeDigits) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(7), "7");
  EXPECT_EQ(count_text(0.125), "0.12");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(999.6), "1.00 k");
  EXPECT_EQ(count_text(1234), "1.23 k");
  EXPECT_EQ(count_text(12345), "12.3 k");
  EXPECT_EQ(count_text(134515008), "135 M");
  EXPECT_EQ(count_text(7.0e9), "7.00 G");
  EXPECT_EQ(count_text(-2500), "-2.50 k");
}

TEST(HumanText, WritesBytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1230000000.0), "1.23 GB");
  EXPECT_EQ(bytes_text(999499999.0), "999 MB");
}

TEST(HumanText, WritesDurationsInTwoUnits) {
  EXPECT_EQ(duration_text(0), "0 s");
  EXPECT_EQ(duration_text(0.0042), "4.20 ms");
  EXPECT_EQ(duration_text(0.42), "420 ms");
  EXPECT_EQ(duration_text(4.21), "4.21 s");
  EXPECT_EQ(duration_text(42), "42 s");
  EXPECT_EQ(duration_text(185), "3 min 05 s");
  EXPECT_EQ(duration_text(7500), "2 h 05 min");
  EXPECT_EQ(duration_text(3 * 86400 + 4 * 3600), "3 d 04 h");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "–");
}

TEST(HumanText, GroupsDigits) {
  EXPECT_EQ(grouped_text(0), "0");
  EXPECT_EQ(grouped_text(999), "999");
  EXPECT_EQ(grouped_text(1000), "1,000");
  EXPECT_EQ(grouped_text(-1234567), "-1,234,567");
}

}  // namespace
}  // namespace weft::train
