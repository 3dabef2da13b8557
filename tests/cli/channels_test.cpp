// What weft chat shows of gpt-oss's channels, and what it remembers.
#include "weft/cli/talk/channels.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft::cli {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}<|start|>{{ m.role }}<|channel|>final<|message|>{{ m.content }}<|end|>"
    "{% endfor %}<|start|>assistant";

text::Tokenizer harmony_tokenizer() {
  text::Vocabulary vocabulary;
  vocabulary.pre_tokenizer = "gpt-2";
  vocabulary.tokens = {"a", "<|start|>", "<|end|>", "<|channel|>", "<|message|>", "<|return|>"};
  vocabulary.kinds.assign(vocabulary.tokens.size(), text::TokenKind::kControl);
  vocabulary.kinds[0] = text::TokenKind::kNormal;
  return text::Tokenizer::make(vocabulary, "test");
}

Channels channels_of(const std::string& source) {
  return {text::ChatTemplate::parse(source, "t"), harmony_tokenizer()};
}

// What was shown, and what is remembered, of an answer that comes in pieces of so many bytes.
std::vector<std::string> told(Channels& channels, const std::string& answer, size_t bytes) {
  std::string shown;
  const generate::TextSink sink = channels.begin([&](const std::string& text) {
    shown += text;
    return true;
  });
  for (size_t at = 0; at < answer.size(); at += bytes) EXPECT_TRUE(sink(answer.substr(at, bytes)));
  generate::TextResult result;
  result.text = answer;
  const text::Message message = channels.finish(result);
  EXPECT_EQ(message.role, "assistant");
  EXPECT_EQ(result.text, shown);
  return {shown, message.content};
}

TEST(Channels, AreShownAsThoughtsAndAnswer) {
  using Told = std::vector<std::string>;
  Channels channels = channels_of(kTemplate);
  const std::string thought = "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant";
  for (const size_t bytes : {1, 7, 500}) {
    EXPECT_EQ(told(channels, thought + "<|channel|>final<|message|>Yes.\n", bytes),
              (Told{"<think>\nLet me see.\n</think>\n\nYes.\n", "Yes.\n"}));
    EXPECT_EQ(told(channels, "<|channel|>final<|message|>No.", bytes), (Told{"No.", "No."}));
    EXPECT_EQ(told(channels, "<|channel|>analysis<|message|>For ev<|", bytes),
              (Told{"<think>\nFor ev<|", ""}));
  }
  // Marks are tokens without a text, unless they are asked for.
  EXPECT_EQ(channels.with_marks({}).spelled, (std::vector<int64_t>{1, 3, 4, 2}));
}

TEST(Channels, OfOtherModelsAreNone) {
  Channels channels = channels_of("{{ messages }}");
  const std::string answer = "<think>a</think><|channel|>final<|message|>b";
  EXPECT_EQ(told(channels, answer, 3), (std::vector<std::string>{answer, answer}));
  EXPECT_TRUE(channels.with_marks({}).spelled.empty());
}

TEST(Channels, EndTheAnswerWhereItsReaderDoes) {
  Channels channels = channels_of(kTemplate);
  const generate::TextSink sink = channels.begin([](const std::string&) { return false; });
  EXPECT_FALSE(sink("<|channel|>"));
  generate::TextResult result;
  EXPECT_EQ(channels.finish(result).content, "");
  EXPECT_EQ(result.text, "");
}

}  // namespace
}  // namespace weft::cli
