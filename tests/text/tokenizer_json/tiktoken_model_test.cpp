// Folders whose tokenizer is a tiktoken.model, see tools/goldens/tiktoken_folder.py.
#include "weft/text/tokenizer_json/tiktoken_model.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/core/temp_dir.h"
#include "tests/text/goldens.h"
#include "weft/core/error.h"
#include "weft/text/tokenizer_json/gguf_vocabulary.h"
#include "weft/text/tokenizer_json/tokenizer_config.h"
#include "weft/text/tokenizer_json/tokenizer_folder.h"
#include "weft/text/tokenizer_json/write_tokenizer_json.h"

namespace weft::text {
namespace {

using core::ConfigError;
using core::FormatError;
using core::Json;
using Ids = std::vector<TokenId>;

constexpr TokenId kFirstSpecial = 979;

std::string tiktoken_golden_folder() { return golden_folder() + "/tiktoken"; }

std::string file_of_tiktoken(const std::string& name) {
  std::ifstream file(tiktoken_golden_folder() + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

using Encode = std::function<Ids(const std::string&)>;

void expect_tiktoken_ids(const char* key, const Encode& encode) {
  const Json golden = read_golden("tiktoken/results.json");
  const Json& inputs = golden.at("inputs");
  ASSERT_GT(inputs.size(), 100u);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string text = from_hex(inputs[i].get<std::string>());
    EXPECT_EQ(encode(text), golden.at(key)[i].get<Ids>()) << core::quote(text);
  }
}

TEST(TiktokenModel, EncodesAsThePackageDoes) {
  const Tokenizer tokenizer = read_tokenizer_folder(tiktoken_golden_folder()).tokenizer;
  expect_tiktoken_ids("plain", [&](const std::string& text) { return tokenizer.encode(text); });
  expect_tiktoken_ids("special",
                      [&](const std::string& text) { return tokenizer.encode_with_special(text); });
}

TEST(TiktokenModel, HasTheSpecialTokensBehindItsRanks) {
  const LoadedTokenizer loaded = read_tokenizer_folder(tiktoken_golden_folder());
  const Tokenizer& tokenizer = loaded.tokenizer;
  EXPECT_EQ(tokenizer.vocab_size(), static_cast<size_t>(kFirstSpecial) + 256);
  EXPECT_EQ(tokenizer.vocabulary().bos, kFirstSpecial);
  EXPECT_EQ(tokenizer.vocabulary().eos, kFirstSpecial + 1);
  EXPECT_EQ(loaded.pad_token, "[PAD]");
  EXPECT_TRUE(tokenizer.is_end(kFirstSpecial + 2));
  EXPECT_EQ(tokenizer.bytes(kFirstSpecial + 4), "<|reserved_token_983|>");
  EXPECT_TRUE(tokenizer.is_special(kFirstSpecial + 4));
  // Calls of tools are no special tokens, so that they are seen in an answer.
  EXPECT_FALSE(tokenizer.is_special(kFirstSpecial + 9));
  EXPECT_EQ(tokenizer.decode({kFirstSpecial + 3, kFirstSpecial + 9}, true), "<|tool_call_begin|>");
  EXPECT_TRUE(tokenizer.prefix().empty());
  EXPECT_EQ(loaded.chat_template().render_text(
                {.messages = {{"user", "a"}}, .bos_token = "[BOS]", .eos_token = "[EOS]"}),
            "<|im_user|>a<|im_end|>");
}

// What llama.cpp writes of such a folder, and what becomes of a GGUF file as a folder again.
TEST(TiktokenModel, KeepsItsIdsAsAGgufsVocabularyAndAsATokenizerJson) {
  const Vocabulary vocabulary = read_gguf_vocabulary(tiktoken_golden_folder());
  EXPECT_EQ(vocabulary.pre_tokenizer, "kimi-k2");
  EXPECT_EQ(vocabulary.merges.size(), static_cast<size_t>(kFirstSpecial) - 256);
  const Tokenizer gguf = Tokenizer::make(vocabulary, "g");
  expect_tiktoken_ids("plain", [&](const std::string& text) { return gguf.encode(text); });
  expect_tiktoken_ids("special",
                      [&](const std::string& text) { return gguf.encode_with_special(text); });
  const Tokenizer json =
      Tokenizer::make(parse_tokenizer_json(to_tokenizer_json(vocabulary, "t"), "t.json"));
  expect_tiktoken_ids("special",
                      [&](const std::string& text) { return json.encode_with_special(text); });
}

TEST(TiktokenModel, GivesWayToATokenizerJson) {
  const testing::TempDir dir;
  dir.write("tiktoken.model", "damaged");
  dir.write("tokenizer.json",
            to_tokenizer_json(read_gguf_vocabulary(tiktoken_golden_folder()), "t"));
  EXPECT_EQ(read_tokenizer_folder(dir.path()).tokenizer.encode("中"),
            read_tokenizer_folder(tiktoken_golden_folder()).tokenizer.encode("中"));
}

Tokenizer tokenizer_of_ranks(const std::string& ranks, const Json& config) {
  const Json none;
  const JsonField field(config, "tokenizer_config.json");
  const TokenizerConfig read = read_tokenizer_config(field, {none, "none"});
  return Tokenizer::make(parse_tiktoken_model(ranks, "t.model", field, read.changes));
}

template <class E>
std::string ranks_error(const std::string& ranks) {
  const Json config = Json::parse(file_of_tiktoken("tokenizer_config.json"));
  return message_of<E>([&] { tokenizer_of_ranks(ranks, config); });
}

TEST(TiktokenModel, RefusesDamagedRanks) {
  EXPECT_EQ(ranks_error<FormatError>(""),
            "t.model: expected 1 to 1073741823 tokens, got 0; the file is damaged");
  for (const std::string line : {"AA=A 0", "AAA 0", "AA== x", "AA== 0 ", "AA==", " 0", "A?== 0"}) {
    EXPECT_EQ(ranks_error<FormatError>(line),
              "t.model: token 0: expected up to 1024 bytes in base64 and a rank, got " +
                  core::quote(line) + "; the file is damaged");
  }
  EXPECT_EQ(ranks_error<FormatError>("AA== 0\nAQ== 2\n"),
            "t.model: token 1: expected a rank of its own below 2, the number of tokens, got 2; "
            "the file is damaged");
  EXPECT_EQ(ranks_error<FormatError>("AA== 0\nAQ== 0\n"),
            "t.model: token 1: expected a rank of its own below 2, the number of tokens, got 0; "
            "the file is damaged");
  EXPECT_EQ(
      ranks_error<FormatError>("AA== 0\nAA== 1\n"),
      "t.model: rank 1: expected a token of its own, got that of rank 0; the file is damaged");
  EXPECT_EQ(ranks_error<FormatError>("AA== 0\nAg== 1\n"),
            "t.model: expected a token of each byte, got none of 1; the file is damaged");
}

std::string config_error(const std::function<void(Json&)>& change) {
  Json config = Json::parse(file_of_tiktoken("tokenizer_config.json"));
  change(config);
  return message_of<ConfigError>(
      [&] { tokenizer_of_ranks(file_of_tiktoken("tiktoken.model"), config); });
}

TEST(TiktokenModel, RefusesAnotherScriptAndOtherTokens) {
  const std::string remedy =
      "; weft would give other ids than the model was trained on, use a model with a supported "
      "tokenizer";
  EXPECT_EQ(config_error([](Json& json) { json.erase("auto_map"); }),
            "tokenizer_config.json.auto_map.AutoTokenizer: expected "
            "\"tokenization_kimi.TikTokenTokenizer\" beside a tiktoken.model, got none" +
                remedy);
  EXPECT_EQ(config_error([](Json& json) { json["auto_map"]["AutoTokenizer"][0] = "other.T"; }),
            "tokenizer_config.json.auto_map.AutoTokenizer: expected "
            "\"tokenization_kimi.TikTokenTokenizer\" beside a tiktoken.model, got 'other.T'" +
                remedy);
  EXPECT_EQ(config_error([](Json& json) {
              json["auto_map"]["AutoTokenizer"][0] = "tokenization_moonshot.TikTokenTokenizer";
            }),
            "");
  EXPECT_EQ(config_error([](Json& json) {
              json["auto_map"]["AutoTokenizer"][0] = "a/b--tokenization_kimi.TikTokenTokenizer";
            }),
            "");
  EXPECT_EQ(config_error([](Json& json) {
              json["added_tokens_decoder"]["1256"] = {{"content", "<x>"}};
            }),
            "t.model: special token '<x>': expected an id of 979 to 1234, got 1256; "
            "tokenizer_config.json is of another tiktoken.model");
  EXPECT_EQ(config_error([](Json& json) { json["unk_token"] = "<unk>"; }),
            "t.model: special token '<unk>': expected one of added_tokens_decoder, got no such id; "
            "tokenizer_config.json is of another tiktoken.model");
}

TEST(TiktokenModel, AFolderWithoutEitherSaysSo) {
  const testing::TempDir dir;
  EXPECT_EQ(message_of<FormatError>([&] { read_tokenizer_folder(dir.path()); }),
            dir.at("tokenizer.json") +
                ": expected a tokenizer.json, or Kimi's tiktoken.model, got no such file; weft "
                "reads no other kind");
}

TEST(TiktokenModel, MutationsGiveOnlyWeftErrors) {
  const std::string text = file_of_tiktoken("tiktoken.model");
  const Json config = Json::parse(file_of_tiktoken("tokenizer_config.json"));
  std::mt19937 random(17);
  size_t right = 0, wrong = 0;
  for (int round = 0; round < 60; ++round) {
    std::string damaged = text;
    const size_t at = random() % damaged.size();
    if (round % 3 == 0) damaged[at] = static_cast<char>(random());
    if (round % 3 == 1) damaged[at] = "ABab01+/= \n"[random() % 11];
    if (round % 3 == 2) damaged.erase(at, random() % 9);
    try {
      const Tokenizer tokenizer = tokenizer_of_ranks(damaged, config);
      tokenizer.decode(tokenizer.encode("It's 2024, 中文 naïve\xFF"));
      tiktoken_merges(tokenizer.vocabulary());
      ++right;
    } catch (const core::Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++wrong;
    }
  }
  EXPECT_GT(right, 0u);
  EXPECT_GT(wrong, 0u);
}

}  // namespace
}  // namespace weft::text
