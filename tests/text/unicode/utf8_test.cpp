#include "weft/text/unicode/utf8.h"

#include <gtest/gtest.h>

namespace weft::text {
namespace {

TEST(Utf8, ReplacesMaximalSubparts) {
  // The Unicode Standard's own examples, tables 3-8 to 3-11, with U+FFFD written as '?'.
  const auto marks = [](std::string_view bytes) {
    std::string out;
    for (std::string text = to_valid_utf8(bytes); !text.empty();) {
      const Utf8Step step = utf8_step(text);
      out += step.code == 0xFFFD ? '?' : static_cast<char>(step.code);
      text.erase(0, step.size);
    }
    return out;
  };
  EXPECT_EQ(marks("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), "????????A");
  EXPECT_EQ(marks("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), "????????A");
  EXPECT_EQ(marks("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), "?????A??B");
  EXPECT_EQ(marks("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "????A");
}

TEST(Utf8, EncodesWhatItDecodes) {
  for (char32_t code = 0; code < 0x110000; code += code < 0x3000 ? 1 : 13) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append_utf8(text, code);
    const Utf8Step step = utf8_step(text);
    EXPECT_TRUE(step.valid);
    EXPECT_EQ(step.code, code);
    EXPECT_EQ(step.size, text.size());
    EXPECT_EQ(utf8_length(text), 1u);
  }
}

TEST(Utf8, TellsACutCharacterFromAWrongOne) {
  EXPECT_TRUE(utf8_step("\xE2\x82").cut);
  EXPECT_FALSE(utf8_step("\xE2\x41").cut);
  EXPECT_FALSE(is_valid_utf8("\xE2\x82"));
  EXPECT_TRUE(is_valid_utf8("\xE2\x82\xAC"));
}

}  // namespace
}  // namespace weft::text
