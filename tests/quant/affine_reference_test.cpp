#include "weft/quant/affine_reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace weft::quant::reference {
namespace {

TEST(AffineReference, StreamStartsAtTheLowestBit) {
  // 0, 1, 2 … 7 in three bits each: 76543210 in octal, lowest byte first.
  const std::vector<uint8_t> packed = {0x88, 0xC6, 0xFA};
  std::vector<uint8_t> codes(8);
  unpack(packed, 3, codes);
  EXPECT_EQ(codes, (std::vector<uint8_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  std::vector<uint8_t> again(3);
  pack(codes, 3, again);
  EXPECT_EQ(again, packed);
}

TEST(AffineReference, LowNibbleComesFirst) {
  EXPECT_EQ(code_at(std::vector<uint8_t>{0xBA}, 4, 0), 0xA);
  EXPECT_EQ(code_at(std::vector<uint8_t>{0xBA}, 4, 1), 0xB);
}

TEST(AffineReference, PackIsTheInverseOfUnpackForAllBits) {
  std::mt19937 random(3);
  for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const size_t length : {8U, 24U, 136U}) {
      std::vector<uint8_t> codes(length);
      for (auto& code : codes) code = static_cast<uint8_t>(random() & ((1U << bits) - 1));
      std::vector<uint8_t> packed(length * static_cast<size_t>(bits) / 8, 0xFF);
      pack(codes, bits, packed);
      std::vector<uint8_t> again(length);
      unpack(packed, bits, again);
      EXPECT_EQ(again, codes) << bits << " bits, " << length << " codes";
    }
  }
}

TEST(AffineReference, PackTakesRowsOfWholeBytesThatAreNoMultipleOfEight) {
  std::vector<uint8_t> packed(3);
  pack(std::vector<uint8_t>{1, 2, 3, 62}, 6, packed);
  EXPECT_EQ(packed, (std::vector<uint8_t>{0x81, 0x30, 0xF8}));
}

TEST(AffineReference, DequantizeUsesEachGroupsScaleAndOffset) {
  const std::vector<uint8_t> packed = {0x10, 0x32};
  const std::vector<float> scales = {2, 10};
  const std::vector<float> offsets = {-1, 0.5F};
  std::vector<float> w(4);
  dequantize({4, 2, packed, scales, offsets}, w);
  EXPECT_EQ(w, (std::vector<float>{-1, 1, 20.5F, 30.5F}));
  EXPECT_EQ(dot({4, 2, packed, scales, offsets}, std::vector<float>{1, 2, 0, -1}), -29.5F);
}

TEST(AffineReference, ErrorIsAtMostHalfAScale) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<float> w(64);
      for (auto& value : w) value = normal(random) + static_cast<float>(trial % 5 - 2);
      std::vector<uint8_t> codes(64);
      const auto [scale, offset] = quantize_group(w, bits, codes);
      float largest_inside = 0;
      for (size_t k = 0; k < w.size(); ++k) {
        // The adjusted scale may leave the far end of the range outside, by less than half a step.
        const float error = std::abs(scale * static_cast<float>(codes[k]) + offset - w[k]);
        EXPECT_LE(error, std::abs(scale) * 1.001F + 1e-6F);
        const bool is_last = codes[k] == (1 << bits) - 1;
        if (!is_last) largest_inside = std::max(largest_inside, error / std::abs(scale));
      }
      EXPECT_LE(largest_inside, 0.501F) << bits << " bits";
    }
  }
}

TEST(AffineReference, EdgeOfLargerMagnitudeIsExact) {
  std::vector<uint8_t> codes(4);
  const std::vector<float> low = {-3.3F, 1, 2, 0};
  const auto from_low = quantize_group(low, 4, codes);
  EXPECT_GT(from_low.scale, 0);
  EXPECT_EQ(from_low.offset, -3.3F);
  EXPECT_EQ(codes[0], 0);
  const std::vector<float> high = {-1, 1, 3.3F, 0};
  const auto from_high = quantize_group(high, 4, codes);
  EXPECT_LT(from_high.scale, 0);
  EXPECT_EQ(from_high.offset, 3.3F);
  EXPECT_EQ(codes[2], 0);
}

TEST(AffineReference, ZerosStayZero) {
  std::vector<uint8_t> codes(32, 7);
  const auto [scale, offset] = quantize_group(std::vector<float>(32, 0.0F), 4, codes);
  EXPECT_EQ(scale, -1e-7F);
  EXPECT_EQ(offset, 0);
  EXPECT_EQ(codes, std::vector<uint8_t>(32, 0));
}

}  // namespace
}  // namespace weft::quant::reference
