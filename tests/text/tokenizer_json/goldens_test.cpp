// What Hugging Face tokenizers does with tokenizer.json files of every published shape, see
// tools/make_tokenizer_json_goldens.py.
#include <gtest/gtest.h>

#include "tests/core/temp_dir.h"
#include "tests/text/tokenizer_json/tokenizer_file.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer_json/gguf_vocabulary.h"
#include "weft/text/tokenizer_json/write_tokenizer_json.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

using Ids = std::vector<TokenId>;

class TokenizerJsonGoldens : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> shape_names() {
  return json_inputs().at("shapes").get<std::vector<std::string>>();
}

core::Json results_of(const std::string& shape) {
  return read_golden("tokenizer_json/" + shape + ".results.json");
}

std::vector<std::string> golden_texts() {
  std::vector<std::string> texts;
  for (const auto& hex : json_inputs().at("inputs")) {
    texts.push_back(from_hex(hex.get<std::string>()));
  }
  return texts;
}

// Compares what `act` makes of every input with the results of the shape under `key`.
template <class Result, class Act>
void expect_results(const std::string& shape, const char* key, Act act) {
  const std::vector<std::string> texts = golden_texts();
  const auto expected = results_of(shape).at(key).get<std::vector<Result>>();
  ASSERT_EQ(texts.size(), expected.size());
  size_t failures = 0;
  for (size_t i = 0; i < texts.size() && failures < 10; ++i) {
    const Result got = act(texts[i]);
    EXPECT_EQ(got, expected[i]) << core::quote(texts[i]);
    failures += got != expected[i] ? 1 : 0;
  }
}

TEST_P(TokenizerJsonGoldens, EncodeWhatWasTypedAlike) {
  const Tokenizer tokenizer = shape_tokenizer(GetParam());
  expect_results<Ids>(GetParam(), "plain",
                      [&](const std::string& text) { return tokenizer.encode(text); });
}

TEST_P(TokenizerJsonGoldens, EncodeSpecialTokensAlike) {
  const Tokenizer tokenizer = shape_tokenizer(GetParam());
  expect_results<Ids>(GetParam(), "special",
                      [&](const std::string& text) { return tokenizer.encode_with_special(text); });
  expect_results<Ids>(GetParam(), "special", [&](const std::string& text) {
    return tokenizer.encode_chat({{text, true}});
  });
  expect_results<Ids>(GetParam(), "plain", [&](const std::string& text) {
    return tokenizer.encode_chat({{text, false}});
  });
}

TEST_P(TokenizerJsonGoldens, DecodeAlikeAtOnceAndInAStream) {
  const Tokenizer tokenizer = shape_tokenizer(GetParam());
  expect_results<std::string>(GetParam(), "decoded", [&](const std::string& text) {
    return to_valid_utf8(tokenizer.decode(tokenizer.encode_with_special(text), true));
  });
  expect_results<std::string>(GetParam(), "decoded", [&](const std::string& text) {
    TokenStream stream(tokenizer, true);
    std::string out;
    for (const TokenId id : tokenizer.encode_with_special(text)) out += stream.push(id);
    return out + stream.finish();
  });
}

TEST_P(TokenizerJsonGoldens, PutTheSameIdsAroundAText) {
  const Tokenizer tokenizer = shape_tokenizer(GetParam());
  Ids ids = tokenizer.prefix();
  for (const TokenId id : tokenizer.encode_with_special("a")) ids.push_back(id);
  ids.insert(ids.end(), tokenizer.suffix().begin(), tokenizer.suffix().end());
  EXPECT_EQ(ids, results_of(GetParam()).at("around").get<Ids>());
  EXPECT_EQ(tokenizer.encode_whole("a"), ids);
  ids.resize(ids.size() - tokenizer.suffix().size());
  EXPECT_EQ(tokenizer.encode_prompt("a"), ids);
}

// What a GGUF file has of such a tokenizer.json: its tokens with their kinds, and its merges.
Vocabulary vocabulary_of(const std::string& shape, const std::string& model) {
  const core::Json file = read_golden("tokenizer_json/" + shape + ".json");
  Vocabulary vocabulary;
  vocabulary.model = model;
  const core::Json& tokens = file.at("model").at("vocab");
  vocabulary.tokens.resize(tokens.size());
  vocabulary.kinds.assign(tokens.size(), TokenKind::kNormal);
  for (const auto& [token, id] : tokens.items()) {
    vocabulary.tokens[id.get<size_t>()] = token;
    const bool is_byte = token.size() == 6 && token.starts_with("<0x");
    if (is_byte) vocabulary.kinds[id.get<size_t>()] = TokenKind::kByte;
  }
  for (const core::Json& added : file.at("added_tokens")) {
    vocabulary.kinds[added.at("id").get<size_t>()] =
        added.at("special").get<bool>() ? TokenKind::kControl : TokenKind::kUserDefined;
  }
  for (const core::Json& merge : file.at("model").at("merges")) {
    vocabulary.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return vocabulary;
}

TEST(GgufVocabulary, OfMarkedSpacesAndMergesEncodesAsTheFolders) {
  const Tokenizer tokenizer = Tokenizer::make(vocabulary_of("gemma", "gemma4"), "g");
  expect_results<Ids>("gemma", "plain",
                      [&](const std::string& text) { return tokenizer.encode(text); });
  expect_results<Ids>("gemma", "special",
                      [&](const std::string& text) { return tokenizer.encode_with_special(text); });
  expect_results<std::string>("gemma", "decoded", [&](const std::string& text) {
    return to_valid_utf8(tokenizer.decode(tokenizer.encode_with_special(text), true));
  });
}

// What is written of such a folder, and what becomes of it as a folder again.
TEST(GgufVocabulary, OfMarkedSpacesAndMergesIsMadeOfAFolder) {
  const testing::TempDir dir;
  dir.write("tokenizer.json", shape_text("gemma"));
  const Vocabulary vocabulary = read_gguf_vocabulary(dir.path(), true);
  EXPECT_EQ(vocabulary.model, "gemma4");
  EXPECT_EQ(vocabulary.pre_tokenizer, "");
  const Tokenizer gguf = Tokenizer::make(vocabulary, "g");
  const Tokenizer folder =
      Tokenizer::make(parse_tokenizer_json(to_tokenizer_json(vocabulary, "t"), "t.json"));
  for (const Tokenizer& tokenizer : {gguf, folder}) {
    expect_results<Ids>("gemma", "plain",
                        [&](const std::string& text) { return tokenizer.encode(text); });
    expect_results<Ids>("gemma", "special", [&](const std::string& text) {
      return tokenizer.encode_with_special(text);
    });
  }
  EXPECT_EQ(message_of<core::ConfigError>([&] { read_gguf_vocabulary(dir.path()); }),
            dir.at("tokenizer.json") +
                ": a SentencePiece tokenizer, expected byte-level BPE; convert its GGUF instead");
  dir.write("tokenizer.json", shape_text("llama2"));
  EXPECT_EQ(message_of<core::ConfigError>([&] { read_gguf_vocabulary(dir.path(), true); }),
            dir.at("tokenizer.json") +
                ": cuts texts otherwise than GGUF's tokenizer of Gemma 4; keep the folder");
}

INSTANTIATE_TEST_SUITE_P(Shapes, TokenizerJsonGoldens, ::testing::ValuesIn(shape_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace weft::text
