#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/models/family_files.h"
#include "tests/models/model_files.h"
#include "weft/core/files/file.h"
#include "weft/models/config/config.h"
#include "weft/models/config/sources.h"

namespace weft::models {
namespace {

using nlohmann::json;
using test::model_data;
using testing::error_text;

ModelConfig family_config(const std::string& name) {
  return config_from_folder(*io::TensorFile::open(model_data("families/" + name)));
}

TEST(ConfigJson, SaysEveryFamilysConfiguration) {
  for (const std::string& name : test::kFamilyCheckpoints) {
    const ModelConfig config = family_config(name);
    const nlohmann::json object = config_json(config);
    EXPECT_EQ(config_from_json(object, name), config) << name << object.dump();
  }
}

TEST(ConfigJson, SaysOptionsThatFilesPutOtherwise) {
  ModelConfig phi3 = family_config("phi3");
  for (const auto& [head_dim, rope_dims] : {std::pair<int64_t, int64_t>{98, 72}, {96, 94}}) {
    phi3.head_dim = head_dim;
    phi3.rope_dims = rope_dims;
    EXPECT_EQ(config_from_json(config_json(phi3), "phi3").rope_dims, rope_dims);
  }
  ModelConfig granite = family_config("granite");
  for (const double divisor : {3.0, 13.0, 6.1, 49.0}) {
    granite.logits_scale = 1 / divisor;
    EXPECT_EQ(config_from_json(config_json(granite), "granite"), granite) << divisor;
  }
  granite.attention_scale = 0;
  EXPECT_EQ(config_json(granite).at("attention_multiplier"), 0.5) << "heads of 4 features";
}

TEST(ConfigJson, NamesTheClassOfTransformers) {
  EXPECT_EQ(config_json(family_config("mixtral")).at("architectures").at(0), "MixtralForCausalLM");
  EXPECT_EQ(config_json(family_config("qwen2_window")).at("layer_types"),
            (nlohmann::json{"full_attention", "sliding_attention"}));
}

TEST(ConfigJson, RefusesWhatTheFamilysFileCanNotSay) {
  ModelConfig config = family_config("llama");
  config.head_norms = HeadNorms::kEachHead;
  EXPECT_EQ(error_text([&] { config_json(config); }),
            "ConfigError: models.config_json: the family 'llama' has no config.json for these "
            "biases, norms, windows, experts or this rope; choose another family or change them");
  config.family = "gpt";
  EXPECT_EQ(error_text([&] { config_json(config); }),
            "ConfigError: models.config_json: no config.json can be made for the family 'gpt'");
}

json changed_config(const std::string& name, const json& changes) {
  json config =
      json::parse(core::read_text_file(model_data("families/" + name + "/config.json"), 1 << 20));
  for (const auto& [key, value] : changes.items()) config[key] = value;
  return config;
}

std::string error_of(const std::string& name, const json& changes) {
  return error_text(
      [&] { check_config(config_from_json(changed_config(name, changes), "here"), "here"); });
}

TEST(ConfigJson, SaysWhatGatedDeltaNetsHave) {
  const ModelConfig config = family_config("qwen3_next");
  EXPECT_EQ(config.recurrent.heads, (nn::DeltaHeads{5, 10, 6, 4}));
  EXPECT_TRUE(config.gates_attention);
  // The same layers without a list of them, and transformers' defaults.
  json missing = {{"layer_types", nullptr}};
  EXPECT_EQ(config_from_json(changed_config("qwen3_next", missing), "here"), config);
  missing["num_hidden_layers"] = 5;
  for (const char* key :
       {"full_attention_interval", "linear_num_key_heads", "linear_num_value_heads",
        "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim"}) {
    missing[key] = nullptr;
  }
  const RecurrentConfig usual =
      config_from_json(changed_config("qwen3_next", missing), "here").recurrent;
  EXPECT_EQ(usual.layers, (std::vector<int64_t>{0, 1, 2, 4}));
  EXPECT_EQ(usual.heads, (nn::DeltaHeads{16, 32, 128, 128}));
  EXPECT_EQ(usual.num_taps, 4);
}

TEST(ConfigJson, NamesDeltaNetsThatMakeNoLayer) {
  EXPECT_EQ(
      error_of("qwen3_next", {{"layer_types", {"conv", "full_attention", "linear_attention"}}}),
      "ConfigError: here: layer_types: 'conv' is not supported, expected one of "
      "[linear_attention, full_attention]");
  EXPECT_EQ(error_of("qwen3_next", {{"linear_num_value_heads", 8}}),
            "FormatError: here: config: 8 value heads over 5 key heads of a delta net, expected a "
            "multiple");
  EXPECT_EQ(error_of("qwen3_next", {{"linear_key_head_dim", 0}}),
            "FormatError: here: config: head dim of a delta net's keys is 0, expected 1 to "
            "1048576");
  EXPECT_EQ(error_of("qwen3_next", {{"layer_types", nullptr}, {"full_attention_interval", 0}}),
            "FormatError: here: full_attention_interval is 0, expected at least 1");
}

// Experts alone have no other width, and routing has no keys but the number.
TEST(ConfigJson, ReadsQwen35WithExpertsAndWithPicturesAround) {
  const json experts = {{"model_type", "qwen3_5_moe_text"},
                        {"intermediate_size", nullptr},
                        {"moe_intermediate_size", 12},
                        {"shared_expert_intermediate_size", 20},
                        {"num_experts", 6},
                        {"num_experts_per_tok", 3}};
  const json own = changed_config("qwen3_5", experts);
  const ModelConfig config = config_from_json(own, "here");
  EXPECT_EQ(config.ffn_width, 12);
  EXPECT_EQ(config.experts.num_experts, 6);
  EXPECT_TRUE(config.experts.normalizes_weights);
  EXPECT_EQ(config_from_json(config_json(config), "back"), config);
  const json around = {{"model_type", "qwen3_5_moe"}, {"text_config", own}};
  EXPECT_EQ(config_from_json(around, "here"), config);
  EXPECT_EQ(error_of("qwen3_5", {{"model_type", "qwen3_5"}, {"text_config", {{"x", 1}}}}),
            "FormatError: here: text_config: missing key \"model_type\"");
}

}  // namespace
}  // namespace weft::models
