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

TEST(ConfigJson, SaysWhatLayersOfTwoKindsHave) {
  const ModelConfig config = family_config("gemma4");
  EXPECT_EQ(config.full_layers, (FullLayersConfig{16, 2, true}));
  EXPECT_EQ(config.windows, (std::vector<int64_t>{6, 0, 6, 6, 0}));
  EXPECT_EQ(config.rope_scaling.type, nn::RopeType::kProportional);
  // As published files have it, instead of a list of layers.
  json published = {{"per_layer_config", nullptr},
                    {"global_head_dim", 16},
                    {"num_global_key_value_heads", 2},
                    {"use_bidirectional_attention", "vision"}};
  EXPECT_EQ(config_from_json(changed_config("gemma4", published), "here"), config);
  published["attention_k_eq_v"] = false;
  EXPECT_EQ(config_from_json(changed_config("gemma4", published), "here").full_layers,
            (FullLayersConfig{16, 3, false}));
  // transformers' defaults; the last layer has no window.
  json missing = {{"num_hidden_layers", 8}};
  for (const char* key : {"per_layer_config", "layer_types", "rope_parameters", "attention_k_eq_v",
                          "num_key_value_heads", "head_dim"}) {
    missing[key] = nullptr;
  }
  const ModelConfig usual = config_from_json(changed_config("gemma4", missing), "here");
  EXPECT_EQ(usual.windows, (std::vector<int64_t>{6, 6, 6, 6, 6, 0, 6, 0}));
  EXPECT_EQ(usual.full_layers.head_dim, 512);
  EXPECT_EQ(usual.head_dim, 256);
  EXPECT_EQ(usual.rope_base, 1e6);
  EXPECT_EQ(usual.window_rope_base, 1e4);
  EXPECT_EQ(usual.rope_scaling.turned_part, 0.25);
  const ModelConfig small = family_config("gemma4_small");
  EXPECT_EQ(small.layer_inputs, (LayerInputsConfig{10, 61}));
  EXPECT_EQ(small.reusing, (ReusingLayersConfig{3, 40}));
  EXPECT_EQ(small.kv_layer(2), 2);
  EXPECT_EQ(small.kv_layer(3), 1);
  EXPECT_EQ(small.kv_layer(4), 2);
  EXPECT_TRUE(family_config("gemma4_moe").experts.is_beside_ffn);
}

TEST(ConfigJson, KnowsFamiliesByAnotherName) {
  EXPECT_EQ(config_from_json(changed_config("deepseek_v3", {{"model_type", "kimi_k2"}}), "here"),
            family_config("deepseek_v3"));
}

TEST(ConfigJson, SaysKvHeadsOfLayersWithValuesOfTheirOwn) {
  ModelConfig config = family_config("gemma4");
  config.full_layers = {16, 1, false};
  const json object = config_json(config);
  const json one_head = {{"head_dim", 16}, {"num_key_value_heads", 1}};
  EXPECT_EQ(object.at("per_layer_config"), (json{{"1", one_head}, {"4", one_head}}));
  EXPECT_EQ(config_from_json(object, "here"), config);
}

TEST(ConfigJson, NamesLayersOfTwoKindsThatMakeNoModel) {
  EXPECT_EQ(error_of("gemma4", {{"use_bidirectional_attention", "all"}}),
            "ConfigError: here: use_bidirectional_attention is 'all', which is not supported, "
            "expected 'vision' or null");
  EXPECT_EQ(error_of("gemma4", {{"per_layer_config", {{"1", {{"sliding_window", 3}}}}}}),
            "ConfigError: here: per_layer_config: 1: 'sliding_window' is not supported, expected "
            "one of [head_dim, num_key_value_heads]");
  EXPECT_EQ(error_of("gemma4", {{"per_layer_config", {{"1", {{"head_dim", 16}}}}}}),
            "ConfigError: here: per_layer_config: layer 4: 3 kv heads of 8, which is not "
            "supported, expected 3 of 16 as others without a window have");
  EXPECT_EQ(error_of("gemma4", {{"per_layer_config", {{"0", {{"head_dim", 16}}}}}}),
            "ConfigError: here: per_layer_config: layer 0: 3 kv heads of 16, which is not "
            "supported, expected 3 of 8 as others with a window have");
  EXPECT_EQ(error_of("gemma4", {{"per_layer_config", {{"9", {{"head_dim", 16}}}}}}),
            "FormatError: here: per_layer_config: 1 layers that there are not, expected numbers "
            "below 5");
  EXPECT_EQ(error_of("gemma4", {{"rope_parameters",
                                 {{"full_attention", {{"rope_type", "linear"}, {"factor", 2}}}}}}),
            "ConfigError: here: rope_parameters: full_attention: this rope_type is not supported, "
            "expected one of [default, proportional]");
  EXPECT_EQ(error_of("gemma4", {{"rope_parameters",
                                 {{"full_attention", {{"rope_theta", 1e6}}},
                                  {"sliding_attention", {{"rope_type", "default"}}}}}}),
            "FormatError: here: rope_parameters: sliding_attention has no rope_theta, expected a "
            "number");
  EXPECT_EQ(error_of("gemma4", {{"rope_theta", 300}}),
            "ConfigError: here: rope_theta is not supported in this family, expected "
            "rope_parameters for rope, and no cap of scores");
  EXPECT_EQ(error_of("gemma4", {{"layer_types", nullptr}, {"sliding_window_pattern", 3}}),
            "ConfigError: here: sliding_window_pattern is not supported in this family, expected "
            "layer_types");
  EXPECT_EQ(error_of("gemma4", {{"per_layer_config", nullptr}, {"global_head_dim", 0}}),
            "FormatError: here: head dim of layers without a window is 0, expected at least 1");
  EXPECT_EQ(error_of("gemma4_small", {{"hidden_size_per_layer_input", -5}}),
            "FormatError: here: hidden_size_per_layer_input is -5, expected 0 or more");
  EXPECT_EQ(error_of("gemma4", {{"per_layer_config", nullptr}, {"global_head_dim", 15}}),
            "FormatError: here: config: head dim 15 of layers without a window, expected an even "
            "number for rope");
  EXPECT_EQ(error_of("gemma4_small", {{"num_kv_shared_layers", 5}}),
            "FormatError: here: config: layer 1 with the keys and values of another: no layer "
            "before 1 has a window as it has, expected one");
  EXPECT_EQ(error_of("gemma4_small", {{"num_kv_shared_layers", 6}}),
            "FormatError: here: config: 6 layers with the keys and values of others, expected 0 "
            "to 5");
  EXPECT_EQ(error_of("gemma4_small", {{"vocab_size_per_layer_input", 60}}),
            "FormatError: here: vocab_size_per_layer_input is 60, expected at least 61 as "
            "vocab_size");
  EXPECT_EQ(error_of("gemma4_moe", {{"num_experts", 0}}),
            "FormatError: here: num_experts is 0, expected at least 1");
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
  json alone = own;
  alone["architectures"] = {"Qwen3_5MoeForCausalLM"};
  EXPECT_EQ(config_of_texts(own, "here"), own);
  for (const bool is_tied : {false, true}) {
    json outer = around;
    outer["tie_word_embeddings"] = alone["tie_word_embeddings"] = is_tied;
    outer["eos_token_id"] = alone["eos_token_id"] = {7, 9};
    EXPECT_EQ(config_of_texts(outer, "here"), alone);
  }
  EXPECT_EQ(error_of("qwen3_5", {{"model_type", "qwen3_5"}, {"text_config", {{"x", 1}}}}),
            "FormatError: here: text_config: missing key \"model_type\"");
}

}  // namespace
}  // namespace weft::models
