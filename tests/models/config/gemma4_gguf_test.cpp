// What GGUF files say of models whose layers differ.
#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/config/gguf_keys.h"
#include "tests/models/family_files.h"
#include "weft/models/config/sources.h"

namespace weft::models {
namespace {

using io::GgufType;
using test::integer;
using test::Keys;
using test::real;
using test::text;
using test::Value;
using testing::error_text;
using testing::raw;
using testing::replaced;
using testing::TempDir;

Value integers(const std::vector<uint32_t>& list) {
  std::string bytes;
  for (const uint32_t value : list) bytes += raw(value);
  return {GgufType::kArray, testing::gguf_array(GgufType::kU32, list.size(), bytes)};
}

Value flags(const std::vector<bool>& list) {
  std::string bytes;
  for (const bool value : list) bytes += value ? '\1' : '\0';
  return {GgufType::kArray, testing::gguf_array(GgufType::kBool, list.size(), bytes)};
}

Keys gemma4_keys() {
  return {{"general.architecture", text("gemma4")},
          {"gemma4.embedding_length", integer(32)},
          {"gemma4.block_count", integer(4)},
          {"gemma4.attention.head_count", integer(4)},
          {"gemma4.attention.head_count_kv", integers({2, 1, 2, 1})},
          {"gemma4.attention.key_length", integer(16)},
          {"gemma4.attention.key_length_swa", integer(8)},
          {"gemma4.attention.sliding_window", integer(6)},
          {"gemma4.attention.sliding_window_pattern", flags({true, false, true, false})},
          {"gemma4.attention.shared_kv_layers", integer(1)},
          {"gemma4.feed_forward_length", integers({48, 48, 48, 96})},
          {"gemma4.context_length", integer(8192)},
          {"gemma4.attention.layer_norm_rms_epsilon", real(1e-6F)},
          {"gemma4.vocab_size", integer(61)}};
}

std::shared_ptr<const io::TensorFile> write_gguf(const TempDir& dir, const Keys& keys,
                                                 const std::vector<float>& divisors) {
  std::string bytes;
  for (const float divisor : divisors) bytes += raw(divisor);
  return test::write_gguf(dir, keys, {{"rope_freqs.weight", {divisors.size()}, 0, bytes}});
}

const std::vector<float> kDivisors = {1, 1, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F, 1e30F};

TEST(Gemma4Gguf, HasListsOfLayers) {
  const TempDir dir;
  const ModelConfig config = read_config(*write_gguf(dir, gemma4_keys(), kDivisors));
  EXPECT_EQ(config.windows, (std::vector<int64_t>{6, 0, 6, 0}));
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.full_layers.head_dim, 16);
  EXPECT_EQ(config.full_layers.num_kv_heads, 1);
  EXPECT_TRUE(config.full_layers.keys_are_values);
  EXPECT_EQ(config.reusing.count, 1);
  EXPECT_EQ(config.ffn_width, 48);
  EXPECT_EQ(config.reusing.ffn_width, 96);
  EXPECT_EQ(config.rope_scaling.turned_part, 0.25);
}

// A published file says what its folder says.
TEST(Gemma4Gguf, OfAPublishedFormSaysWhatItsFolderSays) {
  for (const char* name : {"gemma4", "gemma4_moe", "gemma4_small"}) {
    ModelConfig config = read_config(*io::TensorFile::open(test::family_path(name, "model.gguf")));
    const ModelConfig expected = read_config(*io::TensorFile::open(test::family_path(name)));
    EXPECT_FLOAT_EQ(static_cast<float>(config.norm_eps), static_cast<float>(expected.norm_eps));
    config.norm_eps = expected.norm_eps;
    EXPECT_TRUE(config == expected) << name;
  }
}

TEST(Gemma4Gguf, IsRefusedWhereLayersOfAKindDiffer) {
  const TempDir dir;
  const auto error_with = [&](const char* key, Value value,
                              const std::vector<float>& divisors = kDivisors) {
    Keys keys = gemma4_keys();
    keys[std::string("gemma4.") + key] = std::move(value);
    const auto file = write_gguf(dir, keys, divisors);
    return replaced(error_text([&] { read_config(*file); }), file->path(), "FILE");
  };
  EXPECT_EQ(error_with("attention.head_count_kv", integers({2, 1, 1, 1})),
            "ConfigError: FILE: key 'gemma4.attention.head_count_kv': 1 of layer 2, which is not "
            "supported, expected 2 as layers like it have");
  EXPECT_EQ(
      error_with("attention.head_count_kv", integers({2, 1})),
      "FormatError: FILE: key 'gemma4.attention.head_count_kv': a list of 2, expected one for "
      "each of 4 layers");
  EXPECT_EQ(error_with("feed_forward_length", integers({48, 32, 48, 96})),
            "ConfigError: FILE: key 'gemma4.feed_forward_length': 32 of layer 1, which is not "
            "supported, expected 48 as layers like it have");
  EXPECT_EQ(error_with("attention.shared_kv_layers", integer(5)),
            "FormatError: FILE: key 'gemma4.attention.shared_kv_layers' is 5, expected 0 to 4");
  EXPECT_EQ(error_with("attention.value_length", integer(8)),
            "ConfigError: FILE: key 'gemma4.attention.value_length' is 8, which is not supported, "
            "expected 16 as keys have");
  EXPECT_EQ(error_with("rope.dimension_count", integer(4)),
            "ConfigError: FILE: key 'gemma4.rope.dimension_count' is 4, which is not supported, "
            "expected 16");
  EXPECT_EQ(
      error_with("attention.sliding_window_pattern", integer(6)),
      "FormatError: FILE: key 'gemma4.attention.sliding_window_pattern': expected an array of "
      "truth values");
  EXPECT_EQ(error_with("vocab_size", integer(61), {1, 1, 2, 1e30F, 1, 1, 1, 1}),
            "ConfigError: FILE: tensor 'rope_freqs.weight': these divisors are not supported, "
            "expected 1 for the first pairs and 1e+30 for the others");
  EXPECT_EQ(error_with("vocab_size", integer(61), {1, 1}),
            "FormatError: FILE: tensor 'rope_freqs.weight': F32 [2], expected F32 [8]");
}

TEST(Gemma4Gguf, IsRefusedIfTheEmbeddingOfItsLayersIsNoMatrix) {
  const TempDir dir;
  Keys keys = gemma4_keys();
  keys["gemma4.embedding_length_per_layer_input"] = integer(4);
  const auto file =
      test::write_gguf(dir, keys, {{"per_layer_token_embd.weight", {}, 0, raw(1.0F)}});
  EXPECT_EQ(replaced(error_text([&] { read_config(*file); }), file->path(), "FILE"),
            "FormatError: FILE: tensor 'per_layer_token_embd.weight': shape [], expected a matrix");
}

}  // namespace
}  // namespace weft::models
