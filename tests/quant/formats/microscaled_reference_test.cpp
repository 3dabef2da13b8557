#include "weft/quant/formats/microscaled_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace weft::quant::reference {
namespace {

/// Whether no code but `code` is nearer to `value`.
template <class ValueOf>
bool is_nearest(float value, uint8_t code, int num_codes, const ValueOf& value_of) {
  const float distance = std::abs(value - value_of(code));
  for (int other = 0; other < num_codes; ++other) {
    if (std::abs(value - value_of(static_cast<uint8_t>(other))) < distance) return false;
  }
  return true;
}

TEST(MicroscaledReference, ElementsAreThoseOfTheSpecification) {
  const std::vector<float> positive = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (uint8_t code = 0; code < 16; ++code) {
    const float magnitude = positive[code % 8];
    EXPECT_EQ(e2m1_value(code), code < 8 ? magnitude : -magnitude) << int{code};
  }
  EXPECT_EQ(e4m3_value(0x01), std::ldexp(1.0F, -9));
  EXPECT_EQ(e4m3_value(0x07), std::ldexp(7.0F, -9));
  EXPECT_EQ(e4m3_value(0x08), std::ldexp(1.0F, -6));
  EXPECT_EQ(e4m3_value(0x38), 1.0F);
  EXPECT_EQ(e4m3_value(0x7E), 448.0F);
  EXPECT_EQ(e4m3_value(0xFE), -448.0F);
  EXPECT_TRUE(std::isnan(e4m3_value(0x7F)) && std::isnan(e4m3_value(0xFF)));
  EXPECT_EQ(e8m0_value(0), std::ldexp(1.0F, -127));
  EXPECT_EQ(e8m0_value(127), 1.0F);
  EXPECT_EQ(e8m0_value(254), std::ldexp(1.0F, 127));
  EXPECT_TRUE(std::isnan(e8m0_value(255)));
}

TEST(MicroscaledReference, EveryValueHasItsCode) {
  for (int code = 0; code < 16; ++code) {
    const float value = e2m1_value(static_cast<uint8_t>(code));
    EXPECT_EQ(e2m1_code(value), code == 8 ? 0 : code);
  }
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_value(static_cast<uint8_t>(code));
    if (std::isnan(value)) continue;
    EXPECT_EQ(e4m3_code(value), code);
  }
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(e8m0_code(e8m0_value(static_cast<uint8_t>(code))), code);
  }
}

TEST(MicroscaledReference, CodesAreTheNearest) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 20000; ++i) {
    const float small = 3 * normal(random), wide = normal(random) * std::exp2(4 * normal(random));
    EXPECT_TRUE(is_nearest(small, e2m1_code(small), 16, e2m1_value)) << small;
    EXPECT_TRUE(is_nearest(wide, e4m3_code(wide), 256, e4m3_value)) << wide;
  }
}

TEST(MicroscaledReference, TiesGoToTheSmallerE2m1AndTheEvenE4m3) {
  const std::vector<float> between = {0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5};
  for (size_t i = 0; i < between.size(); ++i) {
    EXPECT_EQ(e2m1_code(between[i]), i);
    EXPECT_EQ(e2m1_code(-between[i]), i == 0 ? 0 : i | 8);
    EXPECT_EQ(e2m1_code(std::nextafter(between[i], 10.0F)), i + 1);
  }
  EXPECT_EQ(e4m3_code(std::ldexp(1.0F, -10)), 0);
  EXPECT_EQ(e4m3_code(std::ldexp(3.0F, -10)), 2);
  EXPECT_EQ(e4m3_code(1.0625F), 0x38);
  EXPECT_EQ(e4m3_code(1.1875F), 0x3A);
  EXPECT_EQ(e4m3_code(-1.9375F), 0xC0) << "carries into the exponent";
}

TEST(MicroscaledReference, WhatIsBeyondBecomesTheLargest) {
  EXPECT_EQ(e2m1_code(1e30F), 7);
  EXPECT_EQ(e4m3_code(-1e30F), 0xFE);
  EXPECT_EQ(e8m0_code(std::numeric_limits<float>::max()), 254);
  EXPECT_EQ(e8m0_code(std::numeric_limits<float>::denorm_min()), 0);
}

TEST(MicroscaledReference, PowersAreRoundedUp) {
  EXPECT_EQ(e8m0_code(1.0F), 127);
  EXPECT_EQ(e8m0_code(std::nextafter(1.0F, 2.0F)), 128);
  EXPECT_EQ(e8m0_code(0.75F), 127);
  EXPECT_EQ(e8m0_code(0), 127);
}

TEST(MicroscaledReference, NoElementOfAGroupIsCutOff) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  for (const Mode mode : {Mode::kMxfp4, Mode::kMxfp8, Mode::kNvfp4}) {
    for (int i = 0; i < 300; ++i) {
      std::vector<float> w(static_cast<size_t>(mode_info(mode).group_size));
      for (float& value : w) value = normal(random);
      std::vector<uint8_t> codes(w.size());
      const float scale = scale_value(mode, quantize_microscaled_group(mode, w, codes));
      // Half the largest step, and E4M3's rounding of the scale itself.
      const float step = mode == Mode::kMxfp8 ? 16 : mode == Mode::kMxfp4 ? 1 : 1.4F;
      for (size_t k = 0; k < w.size(); ++k) {
        EXPECT_LE(std::abs(w[k] - scale * element_value(mode, codes[k])), step * scale);
      }
    }
  }
}

}  // namespace
}  // namespace weft::quant::reference
