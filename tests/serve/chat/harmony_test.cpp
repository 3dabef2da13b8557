#include <gtest/gtest.h>

#include <string>

#include "tests/serve/chat/answer_of.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::serve {
namespace {

using test::answer_of;
using test::options_of;

const AnswerOptions& harmony() {
  static const AnswerOptions options = options_of(ToolFormat::kHarmony);
  return options;
}

TEST(Harmony, TellsChannels) {
  EXPECT_EQ(
      answer_of(harmony(),
                "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>"
                "final<|message|>Yes: <b>1</b>\n"),
      "Let me see.|Yes: <b>1</b>\n|");
  EXPECT_EQ(answer_of(harmony(), "<|channel|>commentary<|message|>First I look.<|end|>"),
            "|First I look.|");
  // Cut short, or without a header.
  EXPECT_EQ(answer_of(harmony(), "<|channel|>analysis<|message|>For ev"), "For ev||");
  EXPECT_EQ(answer_of(harmony(), "<|channel|>anal"), "|<|channel|>anal|");
  EXPECT_EQ(answer_of(harmony(), " {\"a\": 1}"), "| {\"a\": 1}|");
  EXPECT_EQ(answer_of(harmony(), "to be < or not"), "|to be < or not|");
  EXPECT_EQ(answer_of(harmony(), ""), "||");
}

TEST(Harmony, ReadsCalls) {
  const std::string call = " to=functions.f <|constrain|>json<|message|>{\"text\": \"a\"}";
  EXPECT_EQ(answer_of(harmony(),
                      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>"
                      "commentary" +
                          call),
            "Hm.||f({\"text\": \"a\"})");
  EXPECT_EQ(answer_of(harmony(), "<|channel|>commentary" + call + "<|call|>"),
            "||f({\"text\": \"a\"})");
  // The receiver may stand before the channel.
  EXPECT_EQ(answer_of(harmony(), " to=functions.g<|channel|>commentary json<|message|>{}"),
            "||g({})");
  EXPECT_EQ(answer_of(harmony(),
                      "<|channel|>analysis<|message|>a<|end|><|start|>assistant "
                      "to=functions.g<|channel|>commentary<|message|>\n{}"),
            "a||g({})");
  EXPECT_EQ(answer_of(harmony(), "<|channel|>commentary to=functions.f<|message|>{\"text\": \"a"),
            "||f({\"text\": \"a)");
}

TEST(Harmony, LeavesWhatIsNoCallInTheWords) {
  for (const char* words :
       {"<|channel|>commentary to=functions.h <|constrain|>json<|message|>{\"x\": 1}",
        "<|channel|>commentary to=browser.search<|message|>{}",
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>no",
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.f <|constrain|>json"}) {
    EXPECT_EQ(answer_of(harmony(), words), std::string("|") + words + "|");
  }
  AnswerOptions without = harmony();
  without.parses_calls = false;
  EXPECT_EQ(answer_of(without, "<|channel|>commentary to=functions.f<|message|>{}"),
            "|<|channel|>commentary to=functions.f<|message|>{}|");
}

// A message's end is no end of the answer.
TEST(Harmony, EndsAtACallAndAtTheEnd) {
  text::Vocabulary vocabulary;
  vocabulary.pre_tokenizer = "gpt-2";
  vocabulary.tokens = {"a", "<|end|>", "<|call|>", "<|return|>", "<|channel|>"};
  vocabulary.kinds.assign(5, text::TokenKind::kControl);
  vocabulary.kinds[0] = text::TokenKind::kNormal;
  const auto tokenizer = text::Tokenizer::make(vocabulary, "test");
  EXPECT_FALSE(tokenizer.is_end(1));
  EXPECT_TRUE(tokenizer.is_end(2));
  EXPECT_TRUE(tokenizer.is_end(3));
  vocabulary.tokens[4] = "<|user|>";
  EXPECT_TRUE(text::Tokenizer::make(vocabulary, "test").is_end(1));
}

}  // namespace
}  // namespace weft::serve
