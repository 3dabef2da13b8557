// What the families of models have in config.json and GGUF beside sizes.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/family_folder.h"
#include "tests/models/model_files.h"
#include "weft/core/files/file.h"
#include "weft/models/config/config.h"
#include "weft/models/config/sources.h"

namespace weft::models {
namespace {

using nlohmann::json;
using nn::RopeType;
using test::family_path;
using test::FamilyFolder;
using test::model_data;
using testing::error_text;
using testing::replaced;
using testing::TempDir;

TEST(FamilyConfig, ReadsRopeScalingOfEveryType) {
  const FamilyFolder llama("llama");
  EXPECT_EQ(llama.config().rope_scaling.type, RopeType::kDefault);
  EXPECT_EQ(llama.config({{"rope_scaling", {{"rope_type", "default"}}}}).max_positions, 64);
  const ModelConfig linear =
      llama.config({{"rope_scaling", {{"type", "linear"}, {"factor", 2.5}}}});
  EXPECT_EQ(linear.rope_scaling.type, RopeType::kLinear);
  EXPECT_EQ(linear.rope_scaling.factor, 2.5);
  EXPECT_EQ(linear.max_positions, 160);
  const ModelConfig dynamic =
      llama.config({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 3}}}});
  EXPECT_EQ(dynamic.rope_scaling.original_positions, 64);
  EXPECT_EQ(dynamic.max_positions, 192);
  const ModelConfig llama3 = llama.config({{"rope_scaling",
                                            {{"rope_type", "llama3"},
                                             {"factor", 8},
                                             {"low_freq_factor", 1},
                                             {"high_freq_factor", 4},
                                             {"original_max_position_embeddings", 16}}}});
  EXPECT_EQ(llama3.rope_scaling.original_positions, 16);
  EXPECT_EQ(llama3.max_positions, 64);
  const ModelConfig yarn = llama.config({{"rope_scaling",
                                          {{"rope_type", "yarn"},
                                           {"factor", 4},
                                           {"original_max_position_embeddings", 32},
                                           {"beta_fast", 16},
                                           {"beta_slow", nullptr},
                                           {"attention_factor", 1.5},
                                           {"truncate", false}}}});
  EXPECT_EQ(yarn.rope_scaling.beta_fast, 16);
  EXPECT_EQ(yarn.rope_scaling.beta_slow, 1);
  EXPECT_EQ(yarn.rope_scaling.attention_factor, 1.5);
  EXPECT_FALSE(yarn.rope_scaling.truncate);
  EXPECT_EQ(yarn.max_positions, 128);
}

TEST(FamilyConfig, ReadsRopeParametersOfNewerTransformers) {
  const FamilyFolder llama("llama");
  const json parameters = {{"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 5000.0}};
  const ModelConfig config =
      llama.config({{"rope_theta", nullptr}, {"rope_parameters", parameters}});
  EXPECT_EQ(config.rope_base, 5000.0);
  EXPECT_EQ(config.rope_scaling.factor, 2.0);
  EXPECT_EQ(llama.error({{"rope_parameters", parameters},
                         {"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}),
            "FormatError: DIR/config.json: rope_scaling and rope_parameters differ; keep one of "
            "them");
}

struct Bad {
  json changes;
  std::string error;
};

void expect_errors(const std::string& family, const std::vector<Bad>& cases) {
  const FamilyFolder folder(family);
  for (const Bad& bad : cases) EXPECT_EQ(folder.error(bad.changes), bad.error) << bad.changes;
}

TEST(FamilyConfig, RefusesRopeScalingThatMakesNoFrequencies) {
  const auto scaling = [](const json& values) { return json{{"rope_scaling", values}}; };
  expect_errors(
      "llama",
      {{scaling({{"rope_type", "ntk"}, {"factor", 2}}),
        "ConfigError: DIR/config.json: rope scaling: rope scaling 'ntk' is not supported, "
        "expected one of [default, linear, dynamic, llama3, yarn, longrope]"},
       {scaling({{"rope_type", "longrope"}, {"factor", 2}}),
        "FormatError: DIR/config.json: rope scaling: missing key \"short_factor\""},
       {scaling({{"rope_type", "linear"}}),
        "FormatError: DIR/config.json: rope scaling: missing key \"factor\""},
       {scaling({{"rope_type", "linear"}, {"factor", "2"}}),
        "FormatError: DIR/config.json: rope scaling: factor: expected a number, got string"},
       {scaling({{"rope_type", "linear"}, {"factor", 0}}),
        "ConfigError: DIR/config.json: rope scaling: factor is 0, expected a number of at least 1"},
       {scaling({{"rope_type", "linear"}, {"factor", 1e300}}),
        "FormatError: DIR: config: number of positions is 1000000000000000, expected 1 to "
        "2147483648"},
       {scaling({{"rope_type", "linear"}, {"type", "yarn"}, {"factor", 2}}),
        "FormatError: DIR/config.json: rope scaling: rope_type 'linear' and type 'yarn', expected "
        "the same"},
       {scaling({{"rope_type", "llama3"},
                 {"factor", 2},
                 {"low_freq_factor", 4},
                 {"high_freq_factor", 4},
                 {"original_max_position_embeddings", 16}}),
        "ConfigError: DIR/config.json: rope scaling: high_freq_factor is 4, expected more than "
        "low_freq_factor"},
       {scaling({{"rope_type", "yarn"}, {"factor", 2}, {"original_max_position_embeddings", -1}}),
        "ConfigError: DIR/config.json: rope scaling: original_max_position_embeddings is -1, "
        "expected at least 1"},
       {{{"rope_scaling", json::array()}},
        "FormatError: DIR/config.json: rope scaling: expected an object, got array"},
       {{{"partial_rotary_factor", 0.5}},
        "ConfigError: DIR/config.json: partial_rotary_factor is 0.5, expected 1"},
       {{{"hidden_act", "gelu"}},
        "ConfigError: DIR/config.json: hidden_act 'gelu' is not supported, expected 'silu'"}});
}

TEST(FamilyConfig, ReadsSlidingWindows) {
  const FamilyFolder mistral("mistral");
  EXPECT_EQ(mistral.config().windows, (std::vector<int64_t>{5, 5}));
  EXPECT_EQ(mistral.config().window(1), 5);
  EXPECT_TRUE(mistral.config({{"sliding_window", nullptr}}).windows.empty());
  EXPECT_EQ(mistral.config_without("sliding_window").window(0), 4096) << "transformers' default";
  EXPECT_EQ(FamilyFolder("mixtral").config_without("sliding_window").window(0), 0);
  const FamilyFolder qwen2("qwen2_window");
  EXPECT_EQ(qwen2.config().windows, (std::vector<int64_t>{0, 6}));
  EXPECT_EQ(qwen2.config_without("layer_types").windows, (std::vector<int64_t>{0, 6}));
  EXPECT_EQ(qwen2.config({{"layer_types", {"sliding_attention", "full_attention"}}}).windows,
            (std::vector<int64_t>{6, 0}));
  EXPECT_TRUE(
      qwen2.config({{"use_sliding_window", false}, {"layer_types", nullptr}}).windows.empty());
  const FamilyFolder experts("qwen3_moe");
  EXPECT_EQ(experts.config({{"use_sliding_window", true}, {"sliding_window", 3}}).windows,
            (std::vector<int64_t>{3, 3}));
  const FamilyFolder others("qwen2_moe");
  json changes = {{"use_sliding_window", true}, {"sliding_window", 3}};
  EXPECT_EQ(others.config(changes).windows, (std::vector<int64_t>{3, 0}));
  changes["layer_types"] = {"full_attention", "sliding_attention"};
  EXPECT_EQ(others.config(changes).windows, (std::vector<int64_t>{0, 3}));
}

TEST(FamilyConfig, RefusesWindowsThatMakeNoSense) {
  expect_errors(
      "mistral",
      {{{{"sliding_window", 0}},
        "FormatError: DIR/config.json: sliding_window is 0, expected at least 1, or null"},
       {{{"sliding_window", true}},
        "FormatError: DIR/config.json: sliding_window: expected an integer, got boolean"}});
  expect_errors(
      "qwen2_window",
      {{{{"layer_types", {"full_attention"}}},
        "FormatError: DIR: config: attention of 1 layers, expected 2"},
       {{{"layer_types", {"full_attention", "linear_attention"}}},
        "ConfigError: DIR/config.json: layer_types: 'linear_attention' is not supported, expected "
        "one of [full_attention, sliding_attention]"},
       {{{"use_sliding_window", false}},
        "FormatError: DIR/config.json: layer_types: 'sliding_attention' without sliding_window; "
        "set it and use_sliding_window"}});
}

TEST(FamilyConfig, ReadsBiasesAndHeadNorms) {
  const FamilyFolder llama("llama_bias");
  const ModelConfig biased = llama.config();
  EXPECT_TRUE(biased.has_qkv_bias && biased.has_output_bias && biased.has_mlp_bias);
  EXPECT_EQ(biased.head_norms, HeadNorms::kNone);
  EXPECT_FALSE(llama.config({{"attention_bias", false}}).has_qkv_bias);
  const ModelConfig qwen2 = FamilyFolder("qwen2").config();
  EXPECT_TRUE(qwen2.has_qkv_bias && !qwen2.has_output_bias && !qwen2.has_mlp_bias);
  EXPECT_FALSE(FamilyFolder("qwen2_moe").config({{"qkv_bias", false}}).has_qkv_bias);
  const FamilyFolder qwen3("qwen3");
  EXPECT_EQ(qwen3.config().head_norms, HeadNorms::kEachHead);
  EXPECT_EQ(qwen3.config().head_dim, 12);
  EXPECT_EQ(qwen3.config_without("head_dim").head_dim, 128) << "transformers' default";
}

TEST(FamilyConfig, ReadsExperts) {
  const ModelConfig mixtral = FamilyFolder("mixtral").config();
  EXPECT_EQ(mixtral.experts.num_experts, 4);
  EXPECT_EQ(mixtral.experts.experts_per_token, 2);
  EXPECT_EQ(mixtral.experts.ffn_width, 28);
  EXPECT_EQ(mixtral.experts.shared_ffn_width, 0);
  EXPECT_TRUE(mixtral.experts.normalizes_weights && mixtral.has_experts(1));
  const ModelConfig shared = FamilyFolder("qwen2_moe").config();
  EXPECT_EQ(shared.experts.ffn_width, 12);
  EXPECT_EQ(shared.experts.shared_ffn_width, 20);
  EXPECT_FALSE(shared.experts.normalizes_weights);
  const FamilyFolder folder("qwen3_moe_mixed");
  const ModelConfig mixed = folder.config();
  EXPECT_TRUE(mixed.has_experts(0) && !mixed.has_experts(1) && mixed.has_experts(2));
  const ModelConfig stepped =
      folder.config({{"decoder_sparse_step", 2}, {"mlp_only_layers", nullptr}});
  EXPECT_TRUE(!stepped.has_experts(0) && stepped.has_experts(1) && !stepped.has_experts(2));
  EXPECT_FALSE(folder.config({{"num_experts", 0}}).has_experts(0));
}

TEST(FamilyConfig, RefusesExpertsThatMakeNoLayer) {
  expect_errors(
      "mixtral",
      {{{{"num_experts_per_tok", 5}},
        "FormatError: DIR: config: number of experts per token is 5, expected 1 to 4"},
       {{{"num_experts_per_tok", 0}},
        "FormatError: DIR: config: number of experts per token is 0, expected 1 to 4"},
       {{{"num_local_experts", 0}},
        "FormatError: DIR/config.json: num_local_experts is 0, expected at least 1"},
       {{{"num_local_experts", 1'000'000'000}},
        "FormatError: DIR: config: number of experts is 1000000000, expected 1 to 10000"}});
  expect_errors(
      "qwen2_moe",
      {{{{"moe_intermediate_size", 0}},
        "FormatError: DIR: config: ffn width of an expert is 0, expected 1 to 2147483648"},
       {{{"shared_expert_intermediate_size", -1}},
        "FormatError: DIR/config.json: shared_expert_intermediate_size is -1, expected at least 1"},
       {{{"decoder_sparse_step", 0}},
        "FormatError: DIR: config: step of layers with experts is 0, expected 1 to 1000"},
       {{{"mlp_only_layers", {2}}},
        "FormatError: DIR: config: layer 2 without experts, expected 0 to 1"},
       {{{"mlp_only_layers", 1}}, "FormatError: DIR/config.json: mlp_only_layers: expected a list"},
       {{{"num_experts", nullptr}},
        "FormatError: DIR/config.json: num_experts: expected an integer, got null"}});
}

TEST(FamilyConfig, ReadsWhatSmolLm3Has) {
  const FamilyFolder folder("smollm3");
  const ModelConfig config = folder.config();
  EXPECT_EQ(config.layers_without_rope, (std::vector<int64_t>{3}));
  EXPECT_TRUE(config.is_tied) << "transformers' default";
  EXPECT_TRUE(config.windows.empty());
  EXPECT_EQ(folder.config({{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 2}})
                .layers_without_rope,
            (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(folder.config({{"no_rope_layers", nullptr}, {"no_rope_layer_interval", nullptr}})
                .layers_without_rope,
            (std::vector<int64_t>{3}));
  const FamilyFolder windows("smollm3_window");
  EXPECT_EQ(windows.config().layers_without_rope, (std::vector<int64_t>{0}));
  EXPECT_EQ(windows.config().windows, (std::vector<int64_t>{6, 0}));
  EXPECT_EQ(windows.config_without("layer_types").windows, (std::vector<int64_t>{6, 0}));
  EXPECT_TRUE(windows.config().has_qkv_bias && windows.config().has_output_bias);
}

TEST(FamilyConfig, ReadsWhatGraniteHas) {
  const FamilyFolder folder("granite");
  const ModelConfig config = folder.config();
  EXPECT_EQ(config.embedding_scale, 3);
  EXPECT_EQ(config.attention_scale, 0.75);
  EXPECT_EQ(config.residual_scale, 0.375);
  EXPECT_EQ(config.logits_scale, 1 / 1.5);
  EXPECT_EQ(folder.config_without("attention_multiplier").attention_scale, 1)
      << "transformers' default";
  EXPECT_EQ(FamilyFolder("llama").config({{"embedding_multiplier", 2}}).embedding_scale, 1)
      << "no key of a Llama";
}

TEST(FamilyConfig, ReadsWhatPhi3Has) {
  const FamilyFolder folder("phi3");
  EXPECT_EQ(folder.config().rope_dims, 4);
  EXPECT_TRUE(folder.config().windows.empty());
  EXPECT_EQ(folder.config({{"sliding_window", 7}}).windows, (std::vector<int64_t>{7, 7}));
  EXPECT_EQ(folder.config_without("partial_rotary_factor").rope_dims, 0);
  const json rope = {{"rope_type", "default"}, {"partial_rotary_factor", 0.25}};
  EXPECT_EQ(
      folder.config({{"partial_rotary_factor", nullptr}, {"rope_parameters", rope}}).rope_dims, 2);
}

TEST(FamilyConfig, ReadsWhatOlmo2Has) {
  const ModelConfig config = FamilyFolder("olmo2").config();
  EXPECT_EQ(config.norm_placement, NormPlacement::kAfter);
  EXPECT_EQ(config.head_norms, HeadNorms::kAllHeads);
}

TEST(FamilyConfig, RefusesOptionsThatMakeNoSense) {
  expect_errors(
      "smollm3",
      {{{{"no_rope_layers", {1, 1}}},
        "FormatError: DIR/config.json: no_rope_layers: 2 layers, expected 4"},
       {{{"no_rope_layers", 1}}, "FormatError: DIR/config.json: no_rope_layers: expected a list"},
       {{{"no_rope_layers", nullptr}, {"no_rope_layer_interval", 0}},
        "FormatError: DIR/config.json: no_rope_layer_interval is 0, expected at least "
        "1"}});
  expect_errors(
      "granite",
      {{{{"logits_scaling", 0}},
        "FormatError: DIR: config: logits scale inf, expected a positive number"},
       {{{"residual_multiplier", -1}},
        "FormatError: DIR: config: residual scale -1, expected a positive number"},
       {{{"embedding_multiplier", "3"}},
        "FormatError: DIR/config.json: embedding_multiplier: expected a number, got string"}});
  expect_errors(
      "phi3",
      {{{{"partial_rotary_factor", 1.5}},
        "FormatError: DIR/config.json: partial_rotary_factor is 1.5, expected more than 0 and at "
        "most 1"},
       {{{"partial_rotary_factor", 0.1}},
        "FormatError: DIR/config.json: partial_rotary_factor is 0.1, which leaves no dim of 8 to "
        "rope"},
       {{{"partial_rotary_factor", 0.4}},
        "FormatError: DIR: config: rope over 3 of 8 head dims, expected an even number of at most "
        "as many"},
       {{{"rope_scaling", {{"type", "su"}, {"short_factor", {1}}, {"long_factor", {2, 2}}}}},
        "ConfigError: DIR/config.json: rope scaling: 1 short factors and 2 long ones, expected as "
        "many of both"},
       {{{"rope_scaling",
          {{"type", "longrope"}, {"short_factor", {1, 0}}, {"long_factor", {2, 2}}}}},
        "ConfigError: DIR/config.json: rope scaling: short_factor is 0, expected positive numbers"},
       {{{"original_max_position_embeddings", 1},
         {"rope_scaling",
          {{"type", "longrope"}, {"short_factor", {1, 1}}, {"long_factor", {2, 2}}}}},
        "ConfigError: DIR/config.json: rope scaling: original_max_position_embeddings is 1, "
        "expected "
        "at least 2"},
       {{{"rope_scaling",
          {{"type", "longrope"}, {"short_factor", {1, 1, 1}}, {"long_factor", {2, 2, 2}}}}},
        "FormatError: DIR: config: 3 factors of rope's frequencies, expected 2"}});
}

// Older files call the scaling otherwise; newer ones have its positions in it.
TEST(FamilyConfig, ReadsTheListsOfLongRope) {
  const FamilyFolder folder("phi3_long");
  const ModelConfig config = folder.config({});
  EXPECT_EQ(config.rope_scaling.original_positions, 16);
  EXPECT_EQ(config.rope_scaling.factor, 4);
  const json lists = {{"type", "su"}, {"short_factor", {1.0, 1.5}}, {"long_factor", {2.0, 3.5}}};
  EXPECT_TRUE(folder.config(
                  {{"rope_parameters", nullptr}, {"rope_theta", 100.0}, {"rope_scaling", lists}}) ==
              config);
}

// The families' config.json as transformers 4 wrote them, and read and saved by transformers 5.
TEST(FamilyConfig, ReadsTheSameFromBothVersionsOfTransformers) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(model_data("configs_v5"))) {
    if (entry.path().extension() != ".json") continue;
    ++count;
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(name);
    const json saved = json::parse(core::read_text_file(entry.path().string(), 1 << 20));
    EXPECT_EQ(saved.at("transformers_version"), "5.23.0");
    ModelConfig config = config_from_json(saved, name);
    const ModelConfig expected = FamilyFolder(name).config();
    EXPECT_TRUE(config == expected) << config_json(config) << config_json(expected);
  }
  EXPECT_EQ(count, 35U);
}

ModelConfig gguf_config(const std::string& name) {
  return read_config(*io::TensorFile::open(family_path(name, "model.gguf")));
}

// The forms of one checkpoint say the same, but for what GGUF does not know.
TEST(FamilyConfig, ReadsTheSameFromGgufAsFromConfigJson) {
  for (const char* name :
       {"llama",     "llama_bias", "llama_linear", "llama_yarn",       "mistral",     "qwen2",
        "qwen3",     "mixtral",    "qwen2_moe",    "qwen3_moe",        "smollm3",     "granite",
        "phi3",      "olmo2",      "gemma2",       "gemma3",           "gpt_oss",     "ministral3",
        "glm4",      "glm4_moe",   "deepseek_v2",  "deepseek_v2_lite", "deepseek_v3", "lfm2",
        "qwen3_next"}) {
    SCOPED_TRACE(name);
    const ModelConfig folder = FamilyFolder(name).config(), gguf = gguf_config(name);
    EXPECT_EQ(gguf.family, folder.family == "mistral" ? "llama" : folder.family);
    EXPECT_EQ(gguf.vocab_size, folder.vocab_size);
    EXPECT_EQ(gguf.head_dim, folder.head_dim);
    EXPECT_EQ(gguf.num_kv_heads, folder.num_kv_heads);
    EXPECT_EQ(gguf.ffn_width, folder.ffn_width);
    EXPECT_EQ(gguf.recurrent, folder.recurrent);
    EXPECT_EQ(gguf.windows, folder.windows);
    EXPECT_EQ(gguf.is_tied, folder.is_tied);
    EXPECT_EQ(gguf.has_qkv_bias, folder.has_qkv_bias);
    EXPECT_EQ(gguf.has_output_bias, folder.has_output_bias);
    EXPECT_EQ(gguf.has_mlp_bias, folder.has_mlp_bias);
    EXPECT_EQ(gguf.head_norms, folder.head_norms);
    EXPECT_EQ(gguf.norm_placement, folder.norm_placement);
    EXPECT_EQ(gguf.rope_scaling, folder.rope_scaling);
    EXPECT_EQ(gguf.rope_dims, folder.rope_dims);
    EXPECT_EQ(gguf.layers_without_rope, folder.layers_without_rope);
    EXPECT_EQ(gguf.embedding_scale, folder.embedding_scale);
    EXPECT_EQ(gguf.attention_scale, folder.attention_scale);
    EXPECT_EQ(gguf.residual_scale, folder.residual_scale);
    EXPECT_EQ(gguf.logits_scale, folder.logits_scale);
    EXPECT_EQ(gguf.latent, folder.latent);
    EXPECT_EQ(gguf.experts.num_experts, folder.experts.num_experts);
    EXPECT_EQ(gguf.experts.experts_per_token, folder.experts.experts_per_token);
    EXPECT_EQ(gguf.experts.ffn_width, folder.experts.ffn_width);
    EXPECT_EQ(gguf.experts.shared_ffn_width, folder.experts.shared_ffn_width);
    if (folder.experts.num_experts == 0) continue;
    EXPECT_EQ(gguf.experts.normalizes_weights, folder.experts.normalizes_weights);
  }
}

}  // namespace
}  // namespace weft::models
