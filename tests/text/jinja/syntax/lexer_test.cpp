#include "weft/text/jinja/syntax/lexer.h"

#include <gtest/gtest.h>

#include "tests/text/goldens.h"

namespace weft::text::jinja {
namespace {

std::string texts(const std::string& source) {
  std::string out;
  for (const Token& token : lex(source, "t")) {
    out += (out.empty() ? "" : "|") + token.text;
  }
  return out;
}

TEST(JinjaLexer, CutsTagsAndData) {
  EXPECT_EQ(texts("a{{ b.c(1, 'x') }}d"), "a|{{|b|.|c|(|1|,|x|)|}}|d|");
  EXPECT_EQ(texts("{{ {'a': {}} }}"), "{{|{|a|:|{|}|}|}}|");
  EXPECT_EQ(texts("a{# b {{ c }} #}d"), "a|d|");
  EXPECT_EQ(texts("{% raw %}{{ a }}{% endraw %}"), "{{ a }}|");
}

TEST(JinjaLexer, TrimsAroundBlocks) {
  EXPECT_EQ(texts("a\n  {% b %}\nc"), "a\n|{%|b|%}|c|");
  EXPECT_EQ(texts("a\n  {%+ b +%}\nc"), "a\n  |{%|b|%}|\nc|");
  EXPECT_EQ(texts("a \n {%- b -%} \n c"), "a|{%|b|%}|c|");
  EXPECT_EQ(texts("a\n  {{ b }}\nc\n"), "a\n  |{{|b|}}|\nc|");
}

TEST(JinjaLexer, CountsLines) {
  const std::vector<Token> tokens = lex("a\r\n\r{{ b\n }}\n{# \n #}\n{{ c }}", "t");
  ASSERT_EQ(tokens[2].text, "b");
  EXPECT_EQ(tokens[2].line, 3);
  EXPECT_EQ(tokens[6].text, "c");
  EXPECT_EQ(tokens[6].line, 7);
}

TEST(JinjaLexer, ReadsNumbersAndStrings) {
  const std::vector<Token> tokens = lex("{{ 0x1F 1_000 2.5e-1 3.x '\\n\\u00e9' }}", "t");
  EXPECT_EQ(tokens[1].integer, 31);
  EXPECT_EQ(tokens[2].integer, 1000);
  EXPECT_EQ(tokens[3].number, 0.25);
  EXPECT_EQ(tokens[4].integer, 3);
  EXPECT_TRUE(tokens[5].is_operator("."));
  EXPECT_EQ(tokens[7].text, "\né");
}

TEST(JinjaLexer, NamesTheLineOfWhatIsOpen) {
  const auto error = [](const std::string& source) {
    return message_of<core::FormatError>([&] { lex(source, "t"); });
  };
  EXPECT_EQ(error("\n{{ 'a"), "t: line 2: a string is not closed; add '");
  EXPECT_EQ(error("\n\n{# a"), "t: line 3: a comment is not closed; add #}");
  EXPECT_EQ(error("{{ a\n"), "t: line 1: a tag is not closed; add }}");
  EXPECT_EQ(error("{{ a ? b }}"), "t: line 1: unexpected character '?'");
  EXPECT_EQ(error("{{ '\\xZZ' }}"), "t: line 1: a string has a wrong \\x, \\u, \\U or \\N escape");
}

}  // namespace
}  // namespace weft::text::jinja
