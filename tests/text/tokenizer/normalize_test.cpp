#include "weft/text/tokenizer/normalize.h"

#include <gtest/gtest.h>

#include <iomanip>
#include <random>
#include <sstream>

#include "tests/text/goldens.h"
#include "weft/text/unicode/unicode.h"
#include "weft/text/unicode/utf8.h"

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

struct Form {
  const char* name;
  std::string (*normalize)(std::string_view);
};
constexpr Form kForms[] = {{"NFC", normalize_nfc},
                           {"NFD", normalize_nfd},
                           {"NFKC", normalize_nfkc},
                           {"NFKD", normalize_nfkd}};

// See tools/make_normalize_goldens.py.
const core::Json& normalize_golden() {
  static const core::Json file = read_golden("normalize.json");
  return file;
}

std::string block_hash(const Form& form, char32_t first, char32_t size) {
  uint64_t hash = 0xCBF29CE484222325;
  for (char32_t code = first; code < first + size; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code);
    const std::string normal = form.normalize(text);
    for (const char byte : normal + std::string(1, '\0')) {
      hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
    }
  }
  std::ostringstream digits;
  digits << std::hex << std::setw(16) << std::setfill('0') << hash;
  return digits.str();
}

TEST(Normalize, EqualsHuggingFaceOnEveryCharacter) {
  for (const Form& form : kForms) {
    const auto expected =
        normalize_golden().at("blocks").at(form.name).get<std::vector<std::string>>();
    ASSERT_EQ(expected.size(), 272u);
    for (char32_t block = 0; block < expected.size(); ++block) {
      EXPECT_EQ(block_hash(form, block * 4096, 4096), expected[block])
          << form.name << " block " << static_cast<uint32_t>(block);
    }
  }
}

TEST(Normalize, EqualsHuggingFaceOnCharactersThatMeet) {
  const auto texts = normalize_golden().at("texts").get<std::vector<std::string>>();
  ASSERT_GE(texts.size(), 100u);
  for (const Form& form : kForms) {
    const auto expected =
        normalize_golden().at("forms").at(form.name).get<std::vector<std::string>>();
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(form.normalize(from_hex(texts[i])), from_hex(expected[i])) << form.name << texts[i];
    }
  }
}

}  // namespace
}  // namespace weft::text
