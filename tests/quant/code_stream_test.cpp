// Codes as one stream of bits, against the reference that takes them one by one.
#include "weft/quant/code_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "weft/quant/affine_reference.h"

namespace weft::quant {
namespace {

std::vector<uint8_t> random_codes(size_t count, int64_t bits) {
  std::mt19937 draw(static_cast<unsigned>(count * 10) + static_cast<unsigned>(bits));
  std::vector<uint8_t> codes(count);
  for (uint8_t& code : codes) code = static_cast<uint8_t>(draw() & ((1U << bits) - 1));
  return codes;
}

TEST(CodeStream, IsTheReferences) {
  for (int64_t bits = 1; bits <= 8; ++bits) {
    for (const size_t count : {8UL, 16UL, 24UL, 32UL, 40UL, 64UL, 200UL, 256UL, 1000UL}) {
      SCOPED_TRACE(::testing::Message() << count << " codes of " << bits << " bits");
      const auto codes = random_codes(count, bits);
      std::vector<uint8_t> expected(count * static_cast<size_t>(bits) / 8);
      reference::pack(codes, bits, expected);
      std::vector<uint8_t> packed(expected.size());
      pack_codes(codes, bits, packed);
      EXPECT_EQ(packed, expected);
      std::vector<uint8_t> back(count);
      unpack_codes(packed, bits, back);
      EXPECT_EQ(back, codes);
    }
  }
}

// 4 bits need only an even number of codes.
TEST(CodeStream, TakesEndsThatAreNoWholeRun) {
  for (const size_t count : {2UL, 6UL, 10UL, 22UL, 34UL}) {
    const auto codes = random_codes(count, 4);
    std::vector<uint8_t> packed(count / 2), back(count);
    pack_codes(codes, 4, packed);
    unpack_codes(packed, 4, back);
    EXPECT_EQ(back, codes) << count;
  }
}

}  // namespace
}  // namespace weft::quant
