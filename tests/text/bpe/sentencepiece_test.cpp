#include "weft/text/bpe/sentencepiece.h"

#include <gtest/gtest.h>

#include "tests/text/goldens.h"
#include "tests/text/long_text.h"
#include "weft/core/error.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

using core::FormatError;
using Ids = std::vector<TokenId>;

const core::Json& sentencepiece_golden() {
  static const core::Json file = read_golden("sentencepiece.json");
  return file;
}

Vocabulary trained_vocabulary() {
  constexpr TokenKind kKinds[] = {TokenKind::kNormal,  TokenKind::kNormal,      TokenKind::kUnknown,
                                  TokenKind::kControl, TokenKind::kUserDefined, TokenKind::kUnused,
                                  TokenKind::kByte};
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = sentencepiece_golden().at("tokens").get<std::vector<std::string>>();
  vocabulary.scores = sentencepiece_golden().at("scores").get<std::vector<float>>();
  for (const auto& kind : sentencepiece_golden().at("kinds")) {
    vocabulary.kinds.push_back(kKinds[kind.get<size_t>()]);
  }
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.add_bos = true;
  return vocabulary;
}

TEST(SentencePiece, EqualsThePackageOnEveryGolden) {
  const Tokenizer tokenizer = Tokenizer::make(trained_vocabulary(), "t");
  const auto& inputs = sentencepiece_golden().at("inputs");
  const auto ids = sentencepiece_golden().at("ids").get<std::vector<Ids>>();
  const auto decoded = sentencepiece_golden().at("decoded").get<std::vector<std::string>>();
  ASSERT_GT(inputs.size(), 100u);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string text = from_hex(inputs[i].get<std::string>());
    ASSERT_EQ(tokenizer.encode(text), ids[i]) << core::quote(text);
    EXPECT_EQ(tokenizer.decode(ids[i]), decoded[i]) << core::quote(text);
  }
  EXPECT_EQ(tokenizer.prefix(), (Ids{1}));
}

TEST(SentencePiece, MergesThroughCharactersThatAreNoTokens) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.add_space_prefix = false;
  vocabulary.tokens = {"<unk>", "a", "ab", "abc"};
  vocabulary.kinds = {TokenKind::kUnknown, TokenKind::kNormal, TokenKind::kNormal,
                      TokenKind::kNormal};
  vocabulary.scores = {0, -1, -2, -3};
  vocabulary.unknown = 0;
  const Tokenizer tokenizer = Tokenizer::make(vocabulary, "t");
  EXPECT_EQ(tokenizer.encode("abcab"), (Ids{3, 2}));
  EXPECT_EQ(tokenizer.encode("ba"), (Ids{0, 1}));
}

TEST(SentencePiece, RefusesScoresThatDoNotFit) {
  Vocabulary vocabulary = trained_vocabulary();
  vocabulary.scores[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(message_of<FormatError>([&] { Tokenizer::make(vocabulary, "t"); }),
            "t: token score 7: expected a number, got nan; the file is damaged");
  vocabulary.scores.clear();
  EXPECT_EQ(message_of<FormatError>([&] { Tokenizer::make(vocabulary, "t"); }),
            "t: token scores: expected 1000, one per token, got 0; the file is damaged");
}

TEST(SentencePiece, RefusesTokensThatWouldTakeLong) {
  Vocabulary vocabulary = trained_vocabulary();
  vocabulary.tokens[500] = std::string(513, 'a');
  EXPECT_EQ(message_of<FormatError>([&] { Tokenizer::make(vocabulary, "t"); }),
            "t: token 500: expected at most 512 bytes, got 513; the file is damaged");
}

TEST(SentencePiece, EncodesLongRunsInLinearTime) {
  const Tokenizer tokenizer = Tokenizer::make(trained_vocabulary(), "t");
  for (const char unit : {'a', ' ', '\n', '\xF1'}) {
    EXPECT_FALSE(tokenizer.encode(std::string(long_text_size(500'000), unit)).empty());
  }
}

}  // namespace
}  // namespace weft::text
