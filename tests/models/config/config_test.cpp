#include "weft/models/config/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/config/gguf_keys.h"
#include "tests/models/model_files.h"

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

Keys good_keys() {
  return {{"general.architecture", text("llama")},
          {"llama.embedding_length", integer(576)},
          {"llama.block_count", integer(30)},
          {"llama.attention.head_count", integer(9)},
          {"llama.attention.head_count_kv", integer(3)},
          {"llama.feed_forward_length", integer(1536)},
          {"llama.context_length", integer(8192)},
          {"llama.attention.layer_norm_rms_epsilon", real(1e-5F)},
          {"llama.rope.freq_base", real(100'000.0F)},
          {"llama.vocab_size", integer(49152)}};
}

std::shared_ptr<const io::TensorFile> write_gguf(const TempDir& dir, const Keys& keys) {
  return test::write_gguf(dir, keys, {{"x", {1}, 0, raw(1.0F)}});
}

TEST(ReadConfig, ReadsTheKeysOfAGguf) {
  const TempDir dir;
  const ModelConfig config = read_config(*write_gguf(dir, good_keys()));
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.width, 576);
  EXPECT_EQ(config.num_layers, 30);
  EXPECT_EQ(config.num_heads, 9);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.ffn_width, 1536);
  EXPECT_EQ(config.max_positions, 8192);
  EXPECT_FLOAT_EQ(static_cast<float>(config.norm_eps), 1e-5F);
  EXPECT_EQ(config.rope_base, 100'000.0);
  EXPECT_TRUE(config.is_tied) << "there is no output.weight";
}

TEST(ReadConfig, ReadsTheKeysOfARealGguf) {
  const ModelConfig config = read_config(*io::TensorFile::open(test::smollm2_path()));
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.num_heads, 9);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_TRUE(config.is_tied);
}

struct BadKey {
  const char* key;
  Value value;
  const char* error;
};

void expect_gguf_errors(const std::vector<BadKey>& cases) {
  const TempDir dir;
  for (const BadKey& bad : cases) {
    Keys keys = good_keys();
    keys[bad.key] = bad.value;
    const auto file = write_gguf(dir, keys);
    EXPECT_EQ(replaced(error_text([&] { read_config(*file); }), file->path(), "FILE"), bad.error);
  }
}

TEST(ReadConfig, RefusesListsOfLongRopeBesideAnotherScaling) {
  const TempDir dir;
  Keys keys = good_keys();
  keys["llama.embedding_length"] = integer(36);
  keys["llama.rope.scaling.original_context_length"] = integer(4096);
  const std::string pair = raw(1.0F) + raw(2.0F);
  const auto error_of = [&] {
    const auto file = test::write_gguf(
        dir, keys,
        {{"rope_factors_long.weight", {2}, 0, pair}, {"rope_factors_short.weight", {2}, 0, pair}});
    return replaced(error_text([&] { read_config(*file); }), file->path(), "FILE");
  };
  keys["llama.rope.scaling.type"] = text("yarn");
  EXPECT_EQ(
      error_of(),
      "ConfigError: FILE: rope scaling 'yarn' beside the tensor 'rope_factors_long.weight' is "
      "not supported, expected one of [none, longrope]");
}

TEST(ReadConfig, RefusesKeysOfAGgufThatMakeNoModel) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<BadKey> cases = {
      {"llama.attention.head_count", integer(0),
       "FormatError: FILE: config: number of heads is 0, expected at least 1"},
      {"llama.attention.head_count_kv", integer(0),
       "FormatError: FILE: config: number of kv heads is 0, expected 1 to 9"},
      {"llama.attention.head_count_kv", integer(10),
       "FormatError: FILE: config: number of kv heads is 10, expected 1 to 9"},
      {"llama.attention.head_count_kv", integer(2),
       "FormatError: FILE: config: 9 heads over 2 kv heads, expected a multiple"},
      {"llama.attention.key_length", integer(63),
       "FormatError: FILE: config: head dim 63, expected an even number for rope"},
      {"llama.rope.freq_base", real(nan),
       "FormatError: FILE: config: rope base nan, expected a positive number"},
      {"llama.rope.freq_base", real(-1.0F),
       "FormatError: FILE: config: rope base -1, expected a positive number"},
      {"llama.block_count", integer(1'000'000'000),
       "FormatError: FILE: config: number of layers is 1000000000, expected 1 to 1000"},
      {"llama.embedding_length", integer(0),
       "FormatError: FILE: config: width is 0, expected 1 to 2147483648"},
      {"llama.feed_forward_length",
       {GgufType::kI32, raw(int32_t{-4})},
       "FormatError: FILE: config: ffn width is -4, expected 1 to 2147483648"},
      {"llama.context_length",
       {GgufType::kU64, raw(uint64_t{1} << 40)},
       "FormatError: FILE: config: number of positions is 1099511627776, expected 1 to 2147483648"},
      {"llama.attention.layer_norm_rms_epsilon", real(0.0F),
       "FormatError: FILE: config: norm epsilon 0, expected a positive number"},
      {"llama.vocab_size",
       {GgufType::kU64, raw(std::numeric_limits<uint64_t>::max())},
       "FormatError: FILE: key 'llama.vocab_size': expected an integer"},
      {"llama.block_count", text("30"),
       "FormatError: FILE: key 'llama.block_count': expected an integer"},
  };
  expect_gguf_errors(cases);
}

TEST(ReadConfig, RefusesKeysOfAGgufThatItDoesNotSupport) {
  expect_gguf_errors({
      {"llama.rope.dimension_count", integer(32),
       "FormatError: FILE: config: rope over 32 of 64 head dims is not supported, expected all"},
      {"llama.rope.scaling.type", text("longrope"),
       "ConfigError: FILE: rope scaling 'longrope' is not supported, expected one of [none, "
       "linear, yarn]"},
      {"llama.rope.scaling.type", text("yarn"),
       "FormatError: FILE: missing key 'llama.rope.scaling.factor'"},
      {"llama.rope.scaling.attn_factor", real(2.0F),
       "ConfigError: FILE: key 'rope.scaling.attn_factor' is 2, which is not supported, expected "
       "1"},
      {"llama.attention.temperature_scale", real(0.5F),
       "ConfigError: FILE: key 'attention.temperature_scale' is 0.5, which is not supported, "
       "expected 0"},
      {"llama.attention.causal",
       {GgufType::kBool, std::string(1, '\0')},
       "ConfigError: FILE: key 'llama.attention.causal' is false, which is not supported, expected "
       "true"},
      {"llama.attention.value_length", integer(32),
       "ConfigError: FILE: config: values of 32 dims with keys of 64 are not supported, expected "
       "the same"},
      {"llama.attention.sliding_window", text("0"),
       "FormatError: FILE: key 'llama.attention.sliding_window': expected an integer"},
      {"llama.attention.sliding_window_pattern", integer(2),
       "ConfigError: FILE: key 'llama.attention.sliding_window_pattern' is not supported"},
      {"llama.expert_count", integer(8),
       "FormatError: FILE: missing key 'llama.expert_used_count'"},
      {"general.architecture", text("mamba"),
       "ConfigError: FILE: architecture 'mamba' is not supported, expected one of [llama, qwen2, "
       "qwen3, qwen2moe, qwen3moe, smollm3, granite, phi3, olmo2, gemma2, gemma3, gemma4, gpt-oss, "
       "mistral3, glm4, glm4moe, lfm2, qwen3next, qwen35, qwen35moe, deepseek2]"},
  });
}

TEST(ReadConfig, NamesAKeyThatAGgufLacks) {
  const TempDir dir;
  for (const char* key : {"general.architecture", "llama.embedding_length", "llama.block_count",
                          "llama.attention.head_count", "llama.feed_forward_length",
                          "llama.context_length", "llama.attention.layer_norm_rms_epsilon"}) {
    Keys keys = good_keys();
    keys.erase(key);
    const auto file = write_gguf(dir, keys);
    EXPECT_EQ(replaced(error_text([&] { read_config(*file); }), file->path(), "FILE"),
              core::join("FormatError: FILE: missing key '", key, "'"));
  }
}

nlohmann::json good_json() {
  return {{"model_type", "llama"},         {"hidden_size", 128},
          {"num_hidden_layers", 2},        {"num_attention_heads", 4},
          {"num_key_value_heads", 2},      {"intermediate_size", 256},
          {"rms_norm_eps", 1e-5},          {"vocab_size", 256},
          {"rope_theta", 10000.0},         {"tie_word_embeddings", true},
          {"max_position_embeddings", 512}};
}

// A folder with the data of a fixture and a config.json of these values.
class ConfigFolder {
 public:
  ConfigFolder() {
    std::filesystem::copy_file(test::model_data("mlx/plain_f32/model.safetensors"),
                               dir_.at("model.safetensors"));
  }
  std::string config_text(const nlohmann::json& json) const { return json_text(json.dump()); }
  std::string json_text(const std::string& json) const {
    dir_.write("config.json", json);
    const auto file = io::TensorFile::open(dir_.path());
    return replaced(error_text([&] { read_config(*file); }), dir_.path(), "DIR");
  }
  ModelConfig config(const nlohmann::json& json) const {
    dir_.write("config.json", json.dump());
    return read_config(*io::TensorFile::open(dir_.path()));
  }

 private:
  TempDir dir_;
};

TEST(ReadConfig, ReadsConfigJsonBesideTheFile) {
  const ConfigFolder folder;
  const ModelConfig config = folder.config(good_json());
  EXPECT_EQ(config.vocab_size, 256);
  EXPECT_EQ(config.width, 128);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.ffn_width, 256);
  EXPECT_EQ(config.max_positions, 512);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_TRUE(config.is_tied);
  nlohmann::json json = good_json();
  json["head_dim"] = 16;
  json["num_key_value_heads"] = nullptr;
  json.erase("rope_theta");
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  EXPECT_EQ(folder.config(json).head_dim, 16);
  EXPECT_EQ(folder.config(json).num_kv_heads, 4);
  EXPECT_EQ(folder.config(json).rope_base, 500'000.0);
}

TEST(ReadConfig, SaysThatABagOfTensorsIsNoModel) {
  const std::string bag = WEFT_SOURCE_DIR "/tests/cli/data/shard_info/tensors.safetensors";
  EXPECT_EQ(error_text([&] { read_config(*io::TensorFile::open(bag)); }),
            "FormatError: " + bag +
                ": no config.json beside it says which model these tensors are; put it there, or "
                "give a GGUF, which says it itself");
}

TEST(ReadConfig, RefusesConfigJsonThatMakesNoModel) {
  struct Bad {
    const char* key;
    nlohmann::json value;
    const char* error;
  };
  const std::vector<Bad> cases = {
      {"num_attention_heads", 0,
       "FormatError: DIR/config.json: num_attention_heads is 0, expected at least 1"},
      {"num_key_value_heads", 5,
       "FormatError: DIR: config: number of kv heads is 5, expected 1 to 4"},
      {"num_key_value_heads", 3,
       "FormatError: DIR: config: 4 heads over 3 kv heads, expected a multiple"},
      {"head_dim", 33, "FormatError: DIR: config: head dim 33, expected an even number for rope"},
      {"rope_theta", 0, "FormatError: DIR: config: rope base 0, expected a positive number"},
      {"num_hidden_layers", 1'000'000'000,
       "FormatError: DIR: config: number of layers is 1000000000, expected 1 to 1000"},
      {"is_causal", false,
       "ConfigError: DIR/config.json: is_causal is false, which is not supported, expected true"},
      {"vocab_size", -1,
       "FormatError: DIR: config: vocabulary size is -1, expected 1 to 2147483648"},
      {"model_type", "gpt2",
       "ConfigError: DIR/config.json: model_type 'gpt2' is not supported, expected one of [llama, "
       "mistral, mixtral, qwen2, qwen3, qwen2_moe, qwen3_moe, smollm3, granite, phi3, olmo2, "
       "gemma2, gemma3_text, gemma4_text, gpt_oss, ministral3, glm4, glm4_moe, lfm2, qwen3_next, "
       "qwen3_5_text, "
       "qwen3_5_moe_text, deepseek_v3, deepseek_v2, glm4_moe_lite]"},
  };
  const ConfigFolder folder;
  for (const Bad& bad : cases) {
    nlohmann::json json = good_json();
    json[bad.key] = bad.value;
    EXPECT_EQ(folder.config_text(json), bad.error);
  }
}

TEST(ReadConfig, RefusesConfigJsonOfOtherTypes) {
  const ConfigFolder folder;
  for (const char* key : {"hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size", "rms_norm_eps", "vocab_size", "model_type"}) {
    for (const nlohmann::json& value : {nlohmann::json(true), nlohmann::json::array({1})}) {
      nlohmann::json json = good_json();
      json[key] = value;
      const std::string error = folder.config_text(json);
      EXPECT_EQ(error.find("FormatError: DIR/config.json: "), 0U) << key << ": " << error;
    }
    nlohmann::json json = good_json();
    json.erase(key);
    const std::string error = folder.config_text(json);
    EXPECT_EQ(error.find("FormatError: DIR/config.json"), 0U) << error;
    EXPECT_NE(error.find(key), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace weft::models
