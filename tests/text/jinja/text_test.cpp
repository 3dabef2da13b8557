#include "weft/text/jinja/text.h"

#include <gtest/gtest.h>

namespace weft::text::jinja {
namespace {

// Typed stretches in brackets.
std::string marked(const Text& text) {
  std::string out;
  size_t begin = 0;
  for (const Text::Run& run : text.runs()) {
    const std::string part = text.bytes().substr(begin, run.end - begin);
    out += run.typed ? "[" + part + "]" : part;
    begin = run.end;
  }
  EXPECT_EQ(begin, text.size());
  return out;
}

Text sample() {
  Text text("ab");
  text.append("cd", true);
  text.append("ef", true);
  text.append("gh", false);
  return text;
}

TEST(JinjaText, JoinsNeighboursOfOneOrigin) {
  EXPECT_EQ(marked(sample()), "ab[cdef]gh");
  EXPECT_EQ(sample().runs().size(), 3u);
  Text twice = sample();
  twice.append(sample());
  EXPECT_EQ(marked(twice), "ab[cdef]ghab[cdef]gh");
  EXPECT_EQ(twice.runs().size(), 5u);
}

TEST(JinjaText, SlicesWithOrigins) {
  for (size_t begin = 0; begin <= 8; ++begin) {
    for (size_t end = begin; end <= 8; ++end) {
      const Text slice = sample().slice(begin, end);
      EXPECT_EQ(slice.bytes(), std::string("abcdefgh").substr(begin, end - begin));
      EXPECT_EQ(slice.any_typed(), begin < end && begin < 6 && end > 2);
      marked(slice);
    }
  }
  EXPECT_EQ(marked(sample().slice(1, 7)), "b[cdef]g");
}

TEST(JinjaText, StripsPythonsWhiteSpace) {
  EXPECT_EQ(strip(Text("\x1c\u3000 a \u00a0"), Ends::kBoth).bytes(), "a");
  EXPECT_EQ(strip(Text("\u200ba"), Ends::kBoth).bytes(), "\u200ba");
  const std::string chars = "é ";
  EXPECT_EQ(strip(Text("éa é"), Ends::kRight, &chars).bytes(), "éa");
  EXPECT_EQ(strip(Text("   "), Ends::kBoth).bytes(), "");
}

TEST(JinjaText, ChangesCaseAsPython) {
  EXPECT_EQ(change_case("straße ŉ", Case::kUpper), "STRASSE ʼN");
  EXPECT_EQ(change_case("ΑΣ ΣΑ", Case::kLower), "ας σα");
  EXPECT_EQ(change_case("it's ǆ", Case::kTitle), "It'S ǅ");
}

}  // namespace
}  // namespace weft::text::jinja
