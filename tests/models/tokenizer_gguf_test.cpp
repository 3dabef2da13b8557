// GGUF's keys of a SentencePiece tokenizer, on a model that the `sentencepiece` package trained.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/io/gguf_builder.h"
#include "weft/core/json.h"
#include "weft/models/config/sources.h"

namespace weft::models {
namespace {

using io::GgufType;
using testing::gguf_array;
using testing::gguf_key;
using testing::gguf_text;
using testing::raw;

// See tools/make_sentencepiece_goldens.py.
const core::Json& golden() {
  static const core::Json file = [] {
    std::ifstream in(std::string(WEFT_SOURCE_DIR) + "/tests/text/data/sentencepiece.json");
    return core::Json::parse(in);
  }();
  return file;
}

std::vector<std::string> tokenizer_keys() {
  std::string tokens, scores, kinds;
  const size_t count = golden().at("tokens").size();
  for (const auto& token : golden().at("tokens")) tokens += gguf_text(token.get<std::string>());
  for (const auto& score : golden().at("scores")) scores += raw(score.get<float>());
  for (const auto& kind : golden().at("kinds")) kinds += raw(kind.get<int32_t>());
  return {gguf_key("tokenizer.ggml.model", GgufType::kString, gguf_text("llama")),
          gguf_key("tokenizer.ggml.tokens", GgufType::kArray,
                   gguf_array(GgufType::kString, count, tokens)),
          gguf_key("tokenizer.ggml.scores", GgufType::kArray,
                   gguf_array(GgufType::kF32, count, scores)),
          gguf_key("tokenizer.ggml.token_type", GgufType::kArray,
                   gguf_array(GgufType::kI32, count, kinds))};
}

text::Tokenizer tokenizer_of(std::vector<std::string> keys) {
  const testing::TempDir dir;
  testing::GgufBuilder builder;
  builder.keys = std::move(keys);
  return load_tokenizer(*io::TensorFile::open(dir.write("m.gguf", builder.build())));
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

TEST(GgufTokenizer, OfSentencePieceEqualsThePackage) {
  const text::Tokenizer tokenizer = tokenizer_of(tokenizer_keys());
  const auto& inputs = golden().at("inputs");
  const auto ids = golden().at("ids").get<std::vector<std::vector<text::TokenId>>>();
  const auto decoded = golden().at("decoded").get<std::vector<std::string>>();
  ASSERT_GT(inputs.size(), 100u);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(tokenizer.encode(from_hex(inputs[i].get<std::string>())), ids[i]) << i;
    EXPECT_EQ(tokenizer.decode(ids[i]), decoded[i]) << i;
  }
}

TEST(GgufTokenizer, OfSentencePieceHasItsUsualEndsUnlessKeysSayOtherwise) {
  std::vector<std::string> keys = tokenizer_keys();
  EXPECT_EQ(tokenizer_of(keys).prefix(), std::vector<text::TokenId>{1});
  EXPECT_TRUE(tokenizer_of(keys).is_end(2));
  const std::vector<text::TokenId> plain = tokenizer_of(keys).encode("a");
  keys.push_back(gguf_key("tokenizer.ggml.add_bos_token", GgufType::kBool, raw('\0')));
  keys.push_back(gguf_key("tokenizer.ggml.add_space_prefix", GgufType::kBool, raw('\0')));
  EXPECT_TRUE(tokenizer_of(keys).prefix().empty());
  EXPECT_NE(tokenizer_of(keys).encode("a"), plain);
  EXPECT_EQ(tokenizer_of(keys).encode(" a"), plain);
}

TEST(GgufTokenizer, OfSentencePieceNeedsScores) {
  std::vector<std::string> keys = tokenizer_keys();
  keys.erase(keys.begin() + 2);
  const std::string error = testing::error_text([&] { tokenizer_of(keys); });
  EXPECT_TRUE(error.ends_with("m.gguf: missing key 'tokenizer.ggml.scores'")) << error;
}

// The defaults of llama.cpp's llama_vocab: files of these families often lack the key.
TEST(GgufTokenizer, OfBytesBeginsTextsWithBosWhereItsFamilyOrItsKeysSaySo) {
  const auto prefix_of = [](const std::string& family, std::optional<bool> adds_bos) {
    std::string tokens;
    for (const char* token : {"a", "<s>"}) tokens += gguf_text(token);
    std::vector<std::string> keys = {
        gguf_key("tokenizer.ggml.model", GgufType::kString, gguf_text("gpt2")),
        gguf_key("tokenizer.ggml.pre", GgufType::kString, gguf_text(family)),
        gguf_key("tokenizer.ggml.tokens", GgufType::kArray,
                 gguf_array(GgufType::kString, 2, tokens)),
        gguf_key("tokenizer.ggml.token_type", GgufType::kArray,
                 gguf_array(GgufType::kI32, 2, raw(int32_t{1}) + raw(int32_t{3}))),
        gguf_key("tokenizer.ggml.merges", GgufType::kArray, gguf_array(GgufType::kString, 0, "")),
        gguf_key("tokenizer.ggml.bos_token_id", GgufType::kU32, raw(uint32_t{1}))};
    if (adds_bos) {
      keys.push_back(gguf_key("tokenizer.ggml.add_bos_token", GgufType::kBool,
                              raw(static_cast<char>(*adds_bos))));
    }
    return tokenizer_of(keys).encode_prompt("a");
  };
  using Ids = std::vector<text::TokenId>;
  for (const char* family : {"llama-bpe", "llama3", "llama-v3", "tekken"}) {
    EXPECT_EQ(prefix_of(family, std::nullopt), (Ids{1, 0})) << family;
    EXPECT_EQ(prefix_of(family, false), Ids{0}) << family;
  }
  for (const char* family : {"gpt-2", "qwen2", "smollm", "gpt-4o"}) {
    EXPECT_EQ(prefix_of(family, std::nullopt), Ids{0}) << family;
    EXPECT_EQ(prefix_of(family, true), (Ids{1, 0})) << family;
  }
}

}  // namespace
}  // namespace weft::models
