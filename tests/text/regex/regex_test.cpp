#include "weft/text/regex/regex.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/text/goldens.h"
#include "tests/text/tokenizer/pieces_of.h"
#include "weft/core/error.h"
#include "weft/text/tokenizer/pre_tokenizer.h"
#include "weft/text/tokenizer/scanners.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

// The matches of a text, each in bars.
std::string matches(const std::string& pattern, const std::string& text) {
  std::string out;
  for (const Regex::Match& match : Regex::parse(pattern, "t").find_all(text)) {
    out += "|";
    out += text.substr(match.begin, match.end - match.begin);
  }
  return out;
}

std::string refusal(const std::string& pattern) {
  return message_of<core::ConfigError>([&] { Regex::parse(pattern, "t"); });
}

TEST(Regex, TriesAlternativesAndRepetitionsInOrder) {
  EXPECT_EQ(matches("a|ab", "abab"), "|a|a");
  EXPECT_EQ(matches("ab|a", "aba"), "|ab|a");
  EXPECT_EQ(matches("a+?b?", "aab"), "|a|ab");
  EXPECT_EQ(matches("a{2}", "aaaaa"), "|aa|aa");
  EXPECT_EQ(matches("a{1,3}", "aaaaa"), "|aaa|aa");
  EXPECT_EQ(matches("a{,2}b", "aaab"), "|aab");
  EXPECT_EQ(matches("(?:ab)+", "ababa"), "|abab");
  EXPECT_EQ(matches("a++b|.", "aab"), "|aab");
  EXPECT_EQ(matches("a++ab|b", "aab"), "|b");
  EXPECT_EQ(matches("a?+a|b", "ab"), "|b");
}

TEST(Regex, KnowsClassesAndCategories) {
  EXPECT_EQ(matches("[^a-c\\d]+", "ab1xy-2"), "|xy-");
  EXPECT_EQ(matches("[a-z&&[^aeiou]]+", "hello"), "|h|ll");
  EXPECT_EQ(matches("[\\p{Lu}\\p{Nd}]+", "aBÉ1½"), "|BÉ1");
  EXPECT_EQ(matches("\\P{L}", "aé1"), "|1");
  EXPECT_EQ(matches("\\p{^L}", "aé1"), "|1");
  EXPECT_EQ(matches("[\\]\\-a]+", "a]-b"), "|a]-");
  EXPECT_EQ(matches("\\x41\\u00e9\\x{1F600}", "Aé😀"), "|Aé😀");
  EXPECT_EQ(matches(".", "a\nb"), "|a|b");
}

TEST(Regex, LooksAroundAndKnowsLines) {
  EXPECT_EQ(matches("\\s+(?!\\S)|\\s", "a   b "), "|  | | ");
  EXPECT_EQ(matches("(?<=a)b", "abcb"), "|b");
  EXPECT_EQ(matches("(?<!a)b", "abcb"), "|b");
  EXPECT_EQ(matches("^a|b$", "aab\nab"), "|a|b|a|b");
  EXPECT_EQ(matches("\\Aa|b\\z", "aab\nab"), "|a|b");
}

TEST(Regex, FoldsAsciiLettersAndTheTwoOthers) {
  EXPECT_EQ(matches("(?i:s|k)", "sSſkK\u212A"), "|s|S|ſ|k|K|\u212A");
  EXPECT_EQ(matches("'(?i:[sdmt]|ll|ve|re)", "'S'lL'x"), "|'S|'lL");
}

TEST(Regex, RefusesWhatItDoesNotUnderstandWithThePattern) {
  EXPECT_EQ(refusal("a\\b"),
            "t: regular expression: \\b is not supported, got \"a\\b\"; weft/text/regex/regex.h "
            "lists what weft understands, use a tokenizer of that kind");
  for (const char* pattern : {"",        "a*",         "(a",
                              "a)",      "[a",         "[]",
                              "a{2,1}",  "a{99999}",   "*a",
                              "(?<n>a)", "(?>a)",      "(?i)a",
                              "(?=ab)",  "\\p{Greek}", "[[:alpha:]]",
                              "(a*)*",   "(?:ab)++",   "a{2}+",
                              "(?i:st)", "(?i:é)",     "[z-a]",
                              "\\",      "[a-\\p{L}]", "\\xFF",
                              "a\xFF",   "(?i:[a-z])", "((a|b){1000}){1000}"}) {
    EXPECT_NE(refusal(pattern), "") << pattern;
  }
  EXPECT_NE(refusal(std::string(100, '(') + "a" + std::string(100, ')')), "");
  EXPECT_NE(refusal(std::string(100, '[') + "a" + std::string(100, ']')), "");
  EXPECT_NE(refusal(std::string(30'000, 'a')), "");
}

// What a pattern of a few bytes may cost.
TEST(Regex, RefusesPatternsThatWouldTakeMuchMemory) {
  const auto problem = [](const std::string& pattern) {
    const std::string message = refusal(pattern);
    return message.substr(0, message.find(", got"));
  };
  std::string nested = "a", classes;
  for (int i = 0; i < 60; ++i) nested += "{1}";
  for (char32_t code = 0x4E00; code < 0x4E00 + 400; ++code) {
    classes += "[\\P{L}";
    append_utf8(classes, code);
    classes += "]";
  }
  EXPECT_EQ(problem(nested), "t: regular expression: repetitions are nested too deep");
  EXPECT_EQ(problem(classes), "t: regular expression: is too large");
  EXPECT_EQ(problem("\\P{L}{1000}{11}"), "t: regular expression: is too large");
  EXPECT_EQ(matches("\\P{L}{900}{2}", std::string(1800, '.')), "|" + std::string(1800, '.'));
}

// The scanners, which goldens of Hugging Face tokenizers test, and the matcher check each other.
TEST(Regex, EqualsTheScannersOfPublishedPatterns) {
  std::mt19937 random(5);
  for (const std::string_view pattern : known_patterns()) {
    const Regex regex = Regex::parse(pattern, "t");
    const std::vector<PieceStep> steps = {family_step(*find_pattern(pattern))};
    for (int round = 0; round < 600; ++round) {
      std::string text;
      for (size_t i = random() % 25; i > 0; --i) {
        constexpr std::string_view kCommon = "aAbBsStT''  \n\n\r\t.,/!019";
        const uint32_t kind = random() % 4;
        const char32_t common = static_cast<unsigned char>(kCommon[random() % kCommon.size()]);
        append_utf8(text, kind > 0 ? common : random() % (round % 2 == 0 ? 0x400 : 0xD000));
      }
      std::string found, expected;
      for (const Regex::Match& m : regex.find_all(text)) {
        found += "|";
        found += text.substr(m.begin, m.end - m.begin);
      }
      for (const std::string& piece : pieces_of(steps, text)) (expected += "|") += piece;
      ASSERT_EQ(found, expected) << pattern;
    }
  }
}

TEST(Regex, IsLinearWhateverThePattern) {
  for (const char* pattern : {"(a|a)+b", "(a+)+b", "\\s+$", "\\s++$", "a+a+a+b",
                              "(?:a|aa)+(?!\\S)b", "a{0,100}b|\\s{1,50}x", "a?b|\\s*\\s*\\s*x"}) {
    for (const char unit : {'a', ' ', '\n'}) {
      const std::string text = std::string(300'000, unit) + "x";
      EXPECT_LE(Regex::parse(pattern, "t").find_all(text).size(), text.size()) << pattern;
    }
  }
}

}  // namespace
}  // namespace weft::text
