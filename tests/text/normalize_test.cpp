#include "weft/text/normalize.h"

#include <gtest/gtest.h>

#include <random>

#include "weft/text/unicode.h"
#include "weft/text/utf8.h"

namespace weft::text {
namespace {

TEST(Normalize, ComposesAsTheUnicodeStandardSays) {
  const std::pair<const char*, const char*> examples[] = {
      {"abc é", "abc é"},
      {"e\u0301", "é"},
      // Unicode Standard Annex 15: order of marks, blocked marks, exclusions, singletons.
      {"\u1E9B\u0323", "\u1E9B\u0323"},
      {"s\u0323\u0307", "\u1E69"},
      {"s\u0307\u0323", "\u1E69"},
      {"q\u0307\u0323", "q\u0323\u0307"},
      {"a\u0301\u0327\u0301", "á\u0327\u0301"},
      {"\u0958", "\u0915\u093C"},
      {"\u2126", "\u03A9"},
      {"\u212B", "\u00C5"},
      {"\u0344", "\u0308\u0301"},
      {"\uFB1D", "\u05D9\u05B4"},
      // Hangul by formula.
      {"\u1112\u1161\u11AB", "한"},
      {"\uD558\u11AB", "한"},
      {"\uD55C\u11AB", "\uD55C\u11AB"},
      {"\u1112\u11AB", "\u1112\u11AB"},
      {"", ""},
  };
  for (const auto& [text, expected] : examples) EXPECT_EQ(normalize_nfc(text), expected) << text;
}

TEST(Normalize, ChangesNothingTheSecondTime) {
  std::mt19937 random(4);
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      const auto& mark = kMarkRanks[random() % kMarkRanks.size()];
      const auto& whole = kDecompositions[random() % kDecompositions.size()];
      append_utf8(text, random() % 2 == 0 ? mark.code : whole.code);
      if (random() % 4 == 0) append_utf8(text, 'a' + random() % 26);
    }
    const std::string once = normalize_nfc(text);
    EXPECT_EQ(normalize_nfc(once), once);
  }
}

}  // namespace
}  // namespace weft::text
