#include <gtest/gtest.h>

#include <random>

#include "weft/text/tokenizer/tokenizer.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

std::string stream(const std::vector<std::string>& parts) {
  Utf8Stream stream;
  std::string out;
  for (const std::string& part : parts) {
    const std::string text = stream.push(part);
    EXPECT_TRUE(is_valid_utf8(text));
    out += text;
  }
  return out + stream.finish();
}

TEST(Utf8Stream, PrintsTheSameTextWhereverItIsCut) {
  const std::string text =
      "aé日👩‍👩‍👧🏳️‍🌈 \xC3\x28 \xE2\x82 \xF0\x9F\x98 \xED\xA0\x80 \xFF\xC0 "
      "z\xF4\x90";
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      EXPECT_EQ(
          stream({text.substr(0, first), text.substr(first, second - first), text.substr(second)}),
          to_valid_utf8(text));
    }
  }
}

TEST(Utf8Stream, HoldsBackHalfACharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xE6\x97"), "a");
  EXPECT_EQ(stream.push("\xA5"), "日");
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("\xF0\x9F"), "");
  EXPECT_EQ(stream.push("x"), "\uFFFDx");
  EXPECT_EQ(stream.push("\xE6"), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, AgreesWithTheWholeOnRandomBytes) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    std::vector<std::string> bytes;
    for (int i = 0; i < 24; ++i) {
      // Mostly lead and continuation bytes, which is where mistakes would be.
      const char byte = static_cast<char>(random() % 4 == 0 ? random() : 0x80 | (random() & 0x7F));
      text += byte;
      bytes.emplace_back(1, byte);
    }
    EXPECT_EQ(stream(bytes), to_valid_utf8(text));
  }
}

}  // namespace
}  // namespace weft::text
