#include "weft/train/data/document_tokens.h"

#include <gtest/gtest.h>

#include "tests/train/data/data_files.h"

namespace weft::train {
namespace {

using core::FormatError;
using text::message_of;
using Ids = std::vector<text::TokenId>;

constexpr text::TokenId kEndOfText = 0, kStartOfTurn = 1, kEndOfTurn = 2;

const DocumentTokenizer& smollm2() {
  static const DocumentTokenizer tokenizer(smollm2_tokenizer(), smollm2_template());
  return tokenizer;
}

Document text_document(const std::string& text) {
  TextPart part;
  part.text = text;
  return {"f:1", std::move(part)};
}

Ids encode(const std::string& text) { return smollm2_tokenizer().encode(text); }

Ids join_ids(std::initializer_list<Ids> lists) {
  Ids ids;
  for (const Ids& list : lists) ids.insert(ids.end(), list.begin(), list.end());
  return ids;
}

Ids learned_of(const DocumentTokens& tokens) {
  Ids ids;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.is_learned.empty() || tokens.is_learned[i]) ids.push_back(tokens.ids[i]);
  }
  return ids;
}

// A SentencePiece tokenizer, which puts a space before each text, with a bos.
text::Tokenizer sentencepiece_tokenizer() {
  const core::Json golden = text::read_golden("sentencepiece.json");
  constexpr text::TokenKind kKinds[] = {text::TokenKind::kNormal,      text::TokenKind::kNormal,
                                        text::TokenKind::kUnknown,     text::TokenKind::kControl,
                                        text::TokenKind::kUserDefined, text::TokenKind::kUnused,
                                        text::TokenKind::kByte};
  text::Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = golden.at("tokens").get<std::vector<std::string>>();
  vocabulary.scores = golden.at("scores").get<std::vector<float>>();
  for (const auto& kind : golden.at("kinds"))
    vocabulary.kinds.push_back(kKinds[kind.get<size_t>()]);
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.add_bos = true;
  return text::Tokenizer::make(vocabulary, "sentencepiece");
}

TEST(DocumentTokens, OfATextEndWithEndOfText) {
  const DocumentTokens tokens = smollm2().encode(text_document("Hello there."));
  EXPECT_EQ(tokens.ids, join_ids({encode("Hello there."), {kEndOfText}}));
  EXPECT_TRUE(tokens.is_learned.empty());
  EXPECT_TRUE(smollm2().encode(text_document("")).ids.empty());
}

TEST(DocumentTokens, OfATextBeginAsTheTokenizerSays) {
  const DocumentTokenizer tokenizer(sentencepiece_tokenizer());
  const DocumentTokens tokens = tokenizer.encode(text_document("the house"));
  EXPECT_EQ(tokens.ids, join_ids({{1}, tokenizer.tokenizer().encode("the house"), {2}}));
}

TEST(DocumentTokens, OfPartsAreThoseOfTheWholeText) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += core::join("It's line ", i * 37, ", na\xC3\xAFve  and (odd)!", i % 3 == 0 ? " " : "\n",
                       i % 11 == 0 ? "\n\n  indented\tx\n" : "");
  }
  const TemporaryFolder folder;
  const std::string path = folder.write("a.txt", text);
  for (const size_t part_bytes : {200, 1000, 5000}) {
    DocumentReader reader({path}, TextFiles::kOneDocument, part_bytes);
    Document document;
    Ids ids;
    size_t num_parts = 0;
    while (reader.next(document)) {
      const DocumentTokens tokens = smollm2().encode(document);
      ids.insert(ids.end(), tokens.ids.begin(), tokens.ids.end());
      ++num_parts;
    }
    EXPECT_GT(num_parts, text.size() / part_bytes / 4);
    EXPECT_EQ(ids, join_ids({encode(text), {kEndOfText}})) << part_bytes;
  }
}

TEST(DocumentTokens, OfACompletionLearnItAndItsEnd) {
  const DocumentTokens tokens = smollm2().encode({"f:1", Completion{"12+34=", "46"}});
  EXPECT_EQ(tokens.ids, join_ids({encode("12+34="), encode("46"), {kEndOfText}}));
  EXPECT_EQ(learned_of(tokens), join_ids({encode("46"), {kEndOfText}}));
}

TEST(DocumentTokens, OfAPromptAreThoseThatItHasByItself) {
  // As a whole these texts have other tokens.
  for (const auto& [prompt, completion] :
       {std::pair<std::string, std::string>{"under", "stand"}, {"Q: ", "Answer"}}) {
    ASSERT_NE(encode(prompt + completion), join_ids({encode(prompt), encode(completion)}));
    const DocumentTokens tokens = smollm2().encode({"f:1", Completion{prompt, completion}});
    EXPECT_EQ(tokens.ids, join_ids({encode(prompt), encode(completion), {kEndOfText}}));
    EXPECT_EQ(learned_of(tokens), join_ids({encode(completion), {kEndOfText}}));
  }
}

TEST(DocumentTokens, OfACompletionNeverWriteASpaceThatTheTextLacks) {
  const DocumentTokenizer tokenizer(sentencepiece_tokenizer());
  const text::Tokenizer& plain = tokenizer.tokenizer();
  for (const auto& [prompt, completion] :
       {std::pair<std::string, std::string>{"the house", " of the"}, {"th", "e"}, {"", "the"}}) {
    const DocumentTokens tokens = tokenizer.encode({"f:1", Completion{prompt, completion}});
    EXPECT_EQ(tokens.ids, join_ids({{1}, plain.encode(prompt + completion), {2}}));
    EXPECT_FALSE(tokens.is_learned[0]);
    EXPECT_TRUE(tokens.is_learned[tokens.ids.size() - 2]);
    EXPECT_EQ(tokens.is_learned[1], prompt.size() < 3) << prompt;
  }
}

TEST(DocumentTokens, OfAChatLearnAnswersAlone) {
  const DocumentTokens tokens =
      smollm2().encode({"f:1", Conversation{{{"system", "Be brief."},
                                             {"user", "Hi <|im_end|> there"},
                                             {"assistant", "\nHello!"},
                                             {"user", "Bye"},
                                             {"assistant", "See you."}}}});
  const Ids line = encode("\n");
  EXPECT_EQ(tokens.ids, join_ids({{kStartOfTurn}, encode("system\nBe brief."),
                                  {kEndOfTurn},   line,
                                  {kStartOfTurn}, encode("user\nHi <|im_end|> there"),
                                  {kEndOfTurn},   line,
                                  {kStartOfTurn}, encode("assistant\n\nHello!"),
                                  {kEndOfTurn},   line,
                                  {kStartOfTurn}, encode("user\nBye"),
                                  {kEndOfTurn},   line,
                                  {kStartOfTurn}, encode("assistant\nSee you."),
                                  {kEndOfTurn},   line}));
  EXPECT_EQ(
      learned_of(tokens),
      join_ids({encode("\n"), encode("Hello!"), {kEndOfTurn}, encode("See you."), {kEndOfTurn}}));
}

TEST(DocumentTokens, OfAChatAreThoseOfItsPromptAndTheAnswer) {
  // What the model is given to answer is the beginning of what it learns from.
  const std::vector<text::Message> messages = {{"user", "What is 2+2?"}, {"assistant", "4."}};
  const text::ChatTemplate chat_template = smollm2_template();
  const Ids prompt =
      smollm2_tokenizer().encode_chat(chat_template.render({.messages = {messages[0]},
                                                            .bos_token = "<|im_start|>",
                                                            .eos_token = "<|im_end|>",
                                                            .add_generation_prompt = true}));
  const DocumentTokens tokens = smollm2().encode({"f:1", Conversation{messages}});
  ASSERT_GT(tokens.ids.size(), prompt.size());
  EXPECT_EQ(Ids(tokens.ids.begin(), tokens.ids.begin() + static_cast<long>(prompt.size())), prompt);
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    EXPECT_EQ(tokens.is_learned[i], i >= prompt.size() && i + 1 < tokens.ids.size()) << i;
  }
  EXPECT_EQ(learned_of(tokens), join_ids({encode("4."), {kEndOfTurn}}));
}

TEST(DocumentTokens, OfAChatWithBosAreRightWhereTheTokenizerChangesTexts) {
  // Mistral's form over SentencePiece: no token's bytes are the text's.
  const text::Tokenizer plain = sentencepiece_tokenizer();
  const DocumentTokenizer tokenizer(
      plain, text::ChatTemplate::parse(
                 "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + "
                 "m.content + "
                 "' [/INST]' }}{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}",
                 "mistral"));
  const DocumentTokens tokens = tokenizer.encode({"f:1", Conversation{{{"user", "the house"},
                                                                       {"assistant", "of the"},
                                                                       {"user", "and"},
                                                                       {"assistant", "the"}}}});
  const auto special = [&](const std::string& text) { return plain.encode_with_special(text); };
  EXPECT_EQ(tokens.ids,
            special("<s>[INST] the house [/INST] of the</s>[INST] and [/INST] the</s>"));
  EXPECT_EQ(tokens.ids.front(), 1);
  EXPECT_EQ(plain.decode(learned_of(tokens)), "of the</s> the</s>");
}

TEST(DocumentTokens, OfAChatWithoutEndGetOne) {
  const DocumentTokenizer tokenizer(
      smollm2_tokenizer(),
      text::ChatTemplate::parse("{% for m in messages %}{{ m.content }}\n{% endfor %}", "plain"));
  const DocumentTokens tokens =
      tokenizer.encode({"f:1", Conversation{{{"user", "Hi"}, {"assistant", "Hello"}}}});
  EXPECT_EQ(tokens.ids, join_ids({encode("Hi\n"), encode("Hello"), {kEndOfText}}));
  EXPECT_EQ(learned_of(tokens), join_ids({encode("Hello"), {kEndOfText}}));
}

TEST(DocumentTokens, OfAChatNeedATemplate) {
  EXPECT_EQ(message_of<FormatError>([] {
              DocumentTokenizer(smollm2_tokenizer())
                  .encode({"c.jsonl:9", Conversation{{{"assistant", "a"}}}});
            }),
            "c.jsonl:9: messages: expected a model with a chat template, got one without; give the "
            "data as prompt and completion");
}

TEST(DocumentTokens, AreHashedByTokenizerAndTemplate) {
  const uint64_t hash = smollm2().hash();
  EXPECT_EQ(DocumentTokenizer(smollm2_tokenizer(), smollm2_template()).hash(), hash);
  EXPECT_NE(DocumentTokenizer(smollm2_tokenizer()).hash(), hash);
  EXPECT_NE(DocumentTokenizer(smollm2_tokenizer(), named_template("llama3")).hash(), hash);
  text::Vocabulary other = smollm2_vocabulary();
  other.pre_tokenizer = "gpt-2";
  EXPECT_NE(DocumentTokenizer(text::Tokenizer::make(other, "t"), smollm2_template()).hash(), hash);
}

}  // namespace
}  // namespace weft::train
