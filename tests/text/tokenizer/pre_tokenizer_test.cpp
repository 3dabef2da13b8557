#include "weft/text/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/text/goldens.h"
#include "tests/text/tokenizer/pieces_of.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

// The pieces of a text with bars between them.
std::string split(const std::string& name, const std::string& text) {
  std::string out;
  for (const std::string& piece : pieces_of(family_steps(find_pre_tokenizer(name, "t")), text)) {
    if (!out.empty()) out += '|';
    out += piece;
  }
  return out;
}

TEST(PreTokenizer, CutsWordsNumbersAndSpaces) {
  const std::string text = "It's 2024,  DON'T\n\n x";
  EXPECT_EQ(split("gpt-2", text), "It|'s| 2024|,| | DON|'|T|\n\n| x");
  EXPECT_EQ(split("smollm", text), "It|'s| |2|0|2|4|,| | DON|'|T|\n\n| x");
  EXPECT_EQ(split("llama-bpe", text), "It|'s| |202|4|,| | DON|'T|\n\n| x");
  EXPECT_EQ(split("qwen2", text), "It|'s| |2|0|2|4|,| | DON|'T|\n\n| x");
  EXPECT_EQ(split("qwen35", text), "It|'s| |2|0|2|4|,| | DON|'T|\n\n| x");
  EXPECT_EQ(split("gpt-4o", text), "It's| |202|4|,| | DON'T|\n\n| x");
  EXPECT_EQ(split("tekken", text), "It|'s| |2|0|2|4|,| | DON|'T|\n\n| x");
}

TEST(PreTokenizer, LeavesTheLastSpaceToTheNextWord) {
  EXPECT_EQ(split("gpt-2", "a   b"), "a|  | b");
  EXPECT_EQ(split("gpt-2", "a   "), "a|   ");
  // A digit that is cut out first ends the text before it.
  EXPECT_EQ(split("smollm", "a   1"), "a|   |1");
  EXPECT_EQ(split("llama-bpe", "a \n  b"), "a| \n| | b");
}

TEST(PreTokenizer, SeesCaseWhereTheFamilyDoes) {
  EXPECT_EQ(split("gpt-4o", "camelCaseABCdef 日本ABC"), "camel|Case|ABCdef| 日本|ABC");
  EXPECT_EQ(split("llama-bpe", "camelCaseABCdef 日本ABC"), "camelCaseABCdef| 日本ABC");
}

// A vowel sign of Hindi, and an accent behind a space.
TEST(PreTokenizer, LeavesMarksWithTheirLettersWhereTheFamilyDoes) {
  EXPECT_EQ(split("qwen2", "\u0915\u093f\u0915 \u0301!"), "\u0915|\u093f\u0915| \u0301!");
  EXPECT_EQ(split("qwen35", "\u0915\u093f\u0915 \u0301!"), "\u0915\u093f\u0915| \u0301|!");
  EXPECT_EQ(split("qwen35", "\u0301\u0301a1\u0301"), "\u0301\u0301a|1|\u0301");
}

TEST(PreTokenizer, CutsBySeveralExpressionsAsHuggingFaceDoes) {
  const core::Json golden = read_golden("pieces.json");
  ASSERT_EQ(golden.size(), 5u);
  for (const auto& [name, texts] : golden.items()) {
    const auto steps = family_steps(find_pre_tokenizer(name, "t"));
    for (const auto& item : texts) {
      const auto expected = item.get<std::vector<std::string>>();
      std::string text;
      for (const std::string& piece : expected) text += piece;
      EXPECT_EQ(pieces_of(steps, text), expected) << name << " " << item;
    }
  }
}

TEST(PreTokenizer, LosesNoByteOfAnyText) {
  std::mt19937 random(9);
  for (const std::string_view name : pre_tokenizer_names()) {
    const auto steps = family_steps(find_pre_tokenizer(std::string(name), "t"));
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (int i = 0; i < 20; ++i) {
        append_utf8(text, random() % 3 == 0 ? random() % 0xD000 : random() % 0x80);
      }
      std::string joined;
      for (const std::string& piece : pieces_of(steps, text)) {
        EXPECT_FALSE(piece.empty());
        joined += piece;
      }
      EXPECT_EQ(joined, text);
    }
  }
}

}  // namespace
}  // namespace weft::text
