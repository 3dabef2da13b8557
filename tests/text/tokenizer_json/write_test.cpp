#include <gtest/gtest.h>

#include <algorithm>

#include "tests/text/goldens.h"
#include "weft/core/error.h"
#include "weft/text/tokenizer_json/tokenizer_json.h"
#include "weft/text/tokenizer_json/write_tokenizer_json.h"

namespace weft::text {
namespace {

using Ids = std::vector<TokenId>;

Tokenizer written(const Vocabulary& vocabulary) {
  return Tokenizer::make(parse_tokenizer_json(to_tokenizer_json(vocabulary, "t"), "t.json"));
}

TEST(WriteTokenizerJson, GivesTheIdsOfEveryGoldenForEveryFamily) {
  const core::Json cases = read_golden("tokenizer_cases.json");
  for (const auto& [family, expected] : cases.at("plain").items()) {
    const Tokenizer tokenizer = written(golden_vocabulary(family));
    const auto with_special = cases.at("with_special").at(family).get<std::vector<Ids>>();
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::string text = from_hex(cases.at("inputs")[i].get<std::string>());
      EXPECT_EQ(tokenizer.encode_with_special(text), with_special[i])
          << family << " " << core::quote(text);
    }
  }
}

TEST(WriteTokenizerJson, KeepsExpressionsThatFollowEachOther) {
  const core::Json golden = read_golden("pieces.json");
  for (const auto& [family, texts] : golden.items()) {
    const Vocabulary vocabulary = golden_vocabulary(family);
    const Tokenizer expected = Tokenizer::make(vocabulary, "t"), tokenizer = written(vocabulary);
    for (const auto& pieces : texts) {
      std::string text;
      for (const auto& piece : pieces) text += piece.get<std::string>();
      EXPECT_EQ(tokenizer.encode_with_special(text), expected.encode_with_special(text))
          << family << core::quote(text);
    }
  }
}

Vocabulary scored_vocabulary() {
  constexpr TokenKind kKinds[] = {TokenKind::kNormal,  TokenKind::kNormal,      TokenKind::kUnknown,
                                  TokenKind::kControl, TokenKind::kUserDefined, TokenKind::kUnused,
                                  TokenKind::kByte};
  const core::Json golden = read_golden("sentencepiece.json");
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = golden.at("tokens").get<std::vector<std::string>>();
  vocabulary.scores = golden.at("scores").get<std::vector<float>>();
  for (const auto& kind : golden.at("kinds"))
    vocabulary.kinds.push_back(kKinds[kind.get<size_t>()]);
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = 2;
  vocabulary.add_bos = true;
  return vocabulary;
}

TEST(WriteTokenizerJson, MakesMergesOfScores) {
  const core::Json golden = read_golden("sentencepiece.json");
  const Vocabulary vocabulary = scored_vocabulary();
  const Tokenizer tokenizer = written(vocabulary);
  const auto ids = golden.at("ids").get<std::vector<Ids>>();
  const auto has_user_text = [&](const Ids& list) {
    return std::any_of(list.begin(), list.end(), [&](TokenId id) {
      return vocabulary.kinds[static_cast<size_t>(id)] == TokenKind::kUserDefined;
    });
  };
  size_t num_compared = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string text = from_hex(golden.at("inputs")[i].get<std::string>());
    // Hugging Face cuts these out before it puts the space in front.
    if (has_user_text(ids[i])) continue;
    EXPECT_EQ(tokenizer.encode(text), ids[i]) << core::quote(text);
    ++num_compared;
  }
  EXPECT_GT(num_compared, 100U);
  EXPECT_EQ(tokenizer.prefix(), (Ids{1}));
}

TEST(WriteTokenizerJson, NamesSpecialTokensInTheConfiguration) {
  const core::Json config =
      core::parse_json(to_tokenizer_config(scored_vocabulary(), "{{ messages }}"), "t");
  EXPECT_EQ(config.at("bos_token"), scored_vocabulary().tokens[1]);
  EXPECT_EQ(config.at("eos_token"), scored_vocabulary().tokens[2]);
  EXPECT_EQ(config.at("chat_template"), "{{ messages }}");
  EXPECT_EQ(config.at("tokenizer_class"), "PreTrainedTokenizerFast");
}

TEST(WriteTokenizerJson, RefusesAnUnknownKind) {
  Vocabulary vocabulary = golden_vocabulary("gpt-2");
  vocabulary.model = "bert";
  EXPECT_EQ(message_of<core::ConfigError>([&] { to_tokenizer_json(vocabulary, "x.gguf"); }),
            "x.gguf: tokenizer model: expected gpt2, llama or gemma4, got 'bert'");
}

}  // namespace
}  // namespace weft::text
