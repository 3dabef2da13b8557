#include "weft/train/data/chat_answers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/train/data/data_files.h"

namespace weft::train {
namespace {

using core::FormatError;
using text::message_of;

// SmolLM2's vocabulary with the control tokens of other models.
text::Tokenizer many_ends_tokenizer() {
  text::Vocabulary vocabulary = smollm2_vocabulary();
  for (const char* token :
       {"<s>", "</s>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>",
        "<|end_header_id|>", "<end_of_turn>", "<start_of_turn>", "<|end|>", "<|end_of_text|>"}) {
    vocabulary.tokens.emplace_back(token);
    vocabulary.kinds.push_back(text::TokenKind::kControl);
  }
  const auto first = static_cast<text::TokenId>(smollm2_tokenizer().vocab_size());
  vocabulary.bos = first;
  vocabulary.eos = first + 1;
  return text::Tokenizer::make(vocabulary, "test");
}

const text::Tokenizer& chat_tokenizer() {
  static const text::Tokenizer made = many_ends_tokenizer();
  return made;
}

const std::vector<text::Message>& two_turns() {
  static const std::vector<text::Message> messages = {{"user", "first question"},
                                                      {"assistant", "first answer"},
                                                      {"user", "second question"},
                                                      {"assistant", "second answer"}};
  return messages;
}

std::string chat_text(const RenderedChat& chat) {
  std::string text;
  for (const text::ChatPiece& piece : chat.pieces) text += piece.text;
  return text;
}

std::vector<std::string> answers_of(const text::ChatTemplate& chat_template,
                                    const std::vector<text::Message>& messages) {
  const RenderedChat chat = ChatAnswers(chat_template, chat_tokenizer()).render(messages, "f:1");
  const std::string text = chat_text(chat);
  std::vector<std::string> answers;
  for (const TextSpan& span : chat.answers) {
    answers.push_back(text.substr(span.begin, span.end - span.begin));
  }
  return answers;
}

using Texts = std::vector<std::string>;

TEST(ChatAnswers, OfSmolLM2EndWithTheTurnsToken) {
  EXPECT_EQ(answers_of(smollm2_template(), two_turns()),
            (Texts{"first answer<|im_end|>", "second answer<|im_end|>"}));
}

TEST(ChatAnswers, OfPublishedTemplatesAreWhatTheModelWrites) {
  const auto of = [](const char* name) { return answers_of(named_template(name), two_turns()); };
  EXPECT_EQ(of("llama3"), (Texts{"first answer<|eot_id|>", "second answer<|eot_id|>"}));
  EXPECT_EQ(of("gemma"), (Texts{"first answer<end_of_turn>", "second answer<end_of_turn>"}));
  EXPECT_EQ(of("zephyr"), (Texts{"first answer</s>", "second answer</s>"}));
  EXPECT_EQ(of("phi3"), (Texts{"first answer<|end|>", "second answer<|end|>"}));
  EXPECT_EQ(of("qwen2_5"), (Texts{"first answer<|im_end|>", "second answer<|im_end|>"}));
}

TEST(ChatAnswers, HoldWhatTheTemplateWritesBeforeThemBehindTheGenerationPrompt) {
  EXPECT_EQ(answers_of(named_template("qwen3"), two_turns()),
            (Texts{"first answer<|im_end|>", "<think>\n\n</think>\n\nsecond answer<|im_end|>"}));
  std::vector<text::Message> thinking = two_turns();
  thinking[1].content = "<think>\nold thought\n</think>\n\nfirst answer";
  thinking[3].content = "<think>\nhm\n</think>\n\nsecond answer";
  EXPECT_EQ(answers_of(named_template("qwen3"), thinking),
            (Texts{"first answer<|im_end|>", "<think>\nhm\n</think>\n\nsecond answer<|im_end|>"}));
}

TEST(ChatAnswers, AreRightInEveryTemplate) {
  size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(text::golden_folder() + "/templates")) {
    const std::string name = entry.path().stem().string();
    const auto answers = answers_of(named_template(name), two_turns());
    ASSERT_EQ(answers.size(), 2U) << name;
    EXPECT_NE(answers[0].find("first answer"), std::string::npos) << name << answers[0];
    EXPECT_NE(answers[1].find("second answer"), std::string::npos) << name << answers[1];
    for (const std::string& answer : answers) {
      EXPECT_EQ(answer.find("question"), std::string::npos) << name << answer;
      EXPECT_EQ(answer.find("user"), std::string::npos) << name << answer;
    }
    ++count;
  }
  EXPECT_GT(count, 20U);
}

TEST(ChatAnswers, MayHoldAnything) {
  std::vector<text::Message> messages = two_turns();
  // What users type looks like the template, answers are equal, trimmed or another's beginning.
  messages[0].content = "<|im_start|>assistant\nfirst answer<|im_end|>\n";
  messages[1].content = "x";
  messages[2].content = "answer";
  messages[3].content = "x<|im_end|>\n<|im_start|>user\nanswer";
  EXPECT_EQ(answers_of(smollm2_template(), messages),
            (Texts{"x<|im_end|>", "x<|im_end|>\n<|im_start|>user\nanswer<|im_end|>"}));
  messages[1].content = "  spaced \n";
  messages[3].content = "spaced";
  EXPECT_EQ(answers_of(named_template("llama3"), messages),
            (Texts{"spaced<|eot_id|>", "spaced<|eot_id|>"}));
  EXPECT_EQ(answers_of(smollm2_template(), {{"assistant", "only"}}), Texts{"only<|im_end|>"});
}

TEST(ChatAnswers, OfATemplateWithoutEndAreTheirText) {
  const auto plain = text::ChatTemplate::parse(
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}",
      "plain");
  EXPECT_EQ(answers_of(plain, two_turns()), (Texts{"first answer", "second answer"}));
}

TEST(ChatAnswers, NameTheLineOfWhatTheTemplateDoesNotWrite) {
  const auto error = [](const char* source) {
    return message_of<FormatError>(
        [&] { answers_of(text::ChatTemplate::parse(source, "t"), two_turns()); });
  };
  EXPECT_EQ(error("{{ messages[0].content }}"),
            "f:1: messages[1]: expected that the chat template writes this answer once, got none; "
            "remove the line or use another chat template");
  EXPECT_EQ(error("{{ messages[1].content * 2 }}"),
            "f:1: messages[1]: expected that the chat template writes this answer once, got more "
            "than one; remove the line or use another chat template");
  EXPECT_EQ(error("{{ raise_exception('No!') }}"),
            "f:1: messages: the chat template refuses them: t: line 1: the template refuses: No!");
}

}  // namespace
}  // namespace weft::train
