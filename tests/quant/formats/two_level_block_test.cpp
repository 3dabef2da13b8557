#include "weft/quant/formats/two_level_block.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"

namespace weft::quant {
namespace {

TEST(TwoLevelBlock, HasTheFirstHalfOfQ6InTheLowNibbles) {
  std::array<uint8_t, 210> block{};
  block[0] = 0x5A;             // elements 0 and 64
  block[128] = 0b11'10'01'00;  // high bits of elements 0, 32, 64, 96
  block[192] = 0xFF;           // scale of elements 0 to 15: -1
  block[209] = 0x3C;           // d = 1
  TwoLevelBlock parts{};
  decode_two_level_block(core::Dtype::kQ6K, block.data(), parts);
  EXPECT_EQ(parts.codes[0], 0x0A);
  EXPECT_EQ(parts.codes[32], 0x10);
  EXPECT_EQ(parts.codes[64], 0x25);
  EXPECT_EQ(parts.codes[96], 0x30);
  EXPECT_EQ(parts.scales[0], -1);
  EXPECT_EQ(parts.scale, 1.0F);
}

TEST(TwoLevelBlock, RefusesOneLevelKinds) {
  const auto message = test::message_of<core::InternalError>([] {
    TwoLevelBlock parts{};
    decode_two_level_block(core::Dtype::kQ4_0, nullptr, parts);
  });
  EXPECT_EQ(message,
            "quant.decode_two_level_block: type, expected one with blocks of 256, got Q4_0; report "
            "this");
}

}  // namespace
}  // namespace weft::quant
