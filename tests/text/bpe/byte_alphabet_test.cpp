#include "weft/text/bpe/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

TEST(ByteAlphabet, GivesEveryByteALetterOfItsOwn) {
  std::set<char32_t> letters;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t letter = byte_to_letter(static_cast<uint8_t>(byte));
    letters.insert(letter);
    std::string text;
    append_utf8(text, letter);
    EXPECT_EQ(letters_to_bytes(text), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(letters.size(), 256u);
  EXPECT_EQ(byte_to_letter(' '), U'Ġ');
  EXPECT_EQ(byte_to_letter('\n'), U'Ċ');
  EXPECT_EQ(byte_to_letter('a'), U'a');
}

TEST(ByteAlphabet, RefusesOtherCharacters) {
  EXPECT_FALSE(letters_to_bytes("a b"));
  EXPECT_FALSE(letters_to_bytes("日"));
  EXPECT_FALSE(letters_to_bytes("\xC4"));
  EXPECT_EQ(letters_to_bytes(""), "");
}

}  // namespace
}  // namespace weft::text
