// Latent attention in a decoder: the same on any number of ranks, through a cache, and what files
// can't say of it. Its logits are compared with another implementation's in decoder_test.cpp.
#include <map>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/family_files.h"
#include "tests/nn/parameter_part.h"
#include "tests/ops/tensor_checks.h"
#include "weft/core/files/file.h"
#include "weft/models/config/families.h"
#include "weft/models/config/sources.h"
#include "weft/models/load/load.h"
#include "weft/models/load/new_model.h"
#include "weft/nn/parallel/parameter_info.h"

namespace weft::models {
namespace {

using dist::Group;
using nlohmann::json;
using test::expect_close;
using test::part_of;
using testing::error_text;
using testing::replaced;

// 5 heads, which no number of ranks but one shares evenly.
ModelConfig latent_config(int64_t query_rank) {
  ModelConfig config;
  config.family = "deepseek_v2";
  config.vocab_size = 29;
  config.width = 24;
  config.num_layers = 2;
  config.num_heads = config.num_kv_heads = 5;
  config.head_dim = 14;
  config.rope_dims = 8;
  config.ffn_width = 20;
  config.max_positions = 16;
  config.rope_scaling.type = nn::RopeType::kYarn;
  config.rope_scaling.factor = 4;
  config.rope_scaling.original_positions = 8;
  config.rope_scaling.mscale = config.rope_scaling.mscale_all_dim = 1;
  take_family_traits(config);
  config.latent = {.kv_rank = 16, .query_rank = query_rank, .value_dim = 10};
  return config;
}

std::shared_ptr<CausalLM> latent_model(int64_t query_rank, const Group& group) {
  InitOptions options;
  options.std = 0.3;
  return make_model(latent_config(query_rank), group, options);
}

at::Tensor ids() { return at::arange(14, at::kLong).view({2, 7}).remainder(11) + 3; }
at::Tensor latent_targets() { return at::arange(14, at::kLong).view({2, 7}).remainder(9) + 1; }

// The second row is two texts.
TokenBatch packed() {
  return {ids(), at::tensor({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}, at::kLong).view({2, 7}),
          at::tensor({0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 0, 1, 2, 3}, at::kLong).view({2, 7})};
}

at::Tensor losses_of(CausalLM& model, const TokenBatch& batch) {
  model.zero_grad();
  at::Tensor losses = model.token_losses(model.forward(batch), latent_targets());
  losses.sum().backward();
  return losses;
}

void expect_gradients_of_one_rank(int64_t query_rank, const TokenBatch& batch, const Group& group) {
  const auto whole = latent_model(query_rank, {}), model = latent_model(query_rank, group);
  const at::Tensor expected = losses_of(*whole, batch);
  expect_close(losses_of(*model, batch), expected, "losses", 1e-5);
  std::map<std::string, at::Tensor> gradients;
  for (const auto& info : nn::describe_parameters(*whole)) {
    gradients[info.name] = info.tensor.grad();
    EXPECT_GT(info.tensor.grad().abs().max().item<double>(), 0) << info.name;
  }
  for (const auto& info : nn::describe_parameters(*model)) {
    ASSERT_TRUE(info.tensor.grad().defined()) << info.name;
    expect_close(info.tensor.grad(), part_of(gradients.at(info.name), info, group.rank()),
                 core::join(info.name, " on ", group.size()), 1e-5);
  }
}

TEST(LatentAttention, GivesTheGradientsOfOneRankOnAnyNumber) {
  test::on_ranks([](const Group& group) {
    for (const int64_t query_rank : {12, 0}) {
      expect_gradients_of_one_rank(query_rank, {ids()}, group);
      expect_gradients_of_one_rank(query_rank, packed(), group);
    }
  });
}

TEST(LatentAttention, TokensOneAtATimeGiveTheSameAsAll) {
  test::on_ranks([](const Group& group) {
    const at::NoGradGuard no_grad;
    for (const int64_t query_rank : {12, 0}) {
      const auto model = latent_model(query_rank, group);
      const at::Tensor expected = model->logits(model->forward({ids()}));
      for (const std::vector<int64_t>& pieces :
           {std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1}, {4, 1, 2}}) {
        nn::KvCache cache = model->make_cache(2, 7);
        std::vector<at::Tensor> parts;
        for (const int64_t tokens : pieces) {
          const at::Tensor piece = ids().narrow(1, cache.length(), tokens);
          parts.push_back(model->logits(model->forward(piece, &cache)));
        }
        expect_close(at::cat(parts, 1), expected, core::list_text(pieces), 1e-5);
      }
    }
  });
}

TEST(LatentAttention, KeepsOneLatentOfEachTokenOnEveryRank) {
  test::on_ranks(
      [](const Group& group) {
        const nn::KvCache cache = latent_model(12, group)->make_cache(2, 7);
        // Layers, sequences, positions, features of a latent and of the turned keys, bytes.
        EXPECT_EQ(cache.num_bytes(), 2 * 2 * 7 * (16 + 8) * 4);
      },
      {1, 3});
}

TEST(LatentAttention, RefusesSequenceParallelism) {
  TrainingOptions options;
  options.sequence_parallel = true;
  ModelConfig config = latent_config(12);
  config.experts.num_experts = 0;
  config.experts.plain_layers.clear();
  const auto model = make_model(config, Group(), {});
  EXPECT_EQ(error_text([&] { model->set_training(options); }),
            "ConfigError: models.CausalLM: sequence parallelism: deepseek_v2 with latent "
            "attention, expected a model without");
}

std::string config_error(const json& changes, const std::string& name = "deepseek_v3") {
  const testing::TempDir dir;
  std::filesystem::copy(test::family_path(name), dir.path());
  json config = json::parse(dir.read("config.json"));
  for (const auto& [key, value] : changes.items()) config[key] = value;
  dir.write("config.json", config.dump());
  return replaced(error_text([&] { read_config(*io::TensorFile::open(dir.path())); }), dir.path(),
                  "DIR");
}

TEST(LatentAttention, NamesKeysThatItDoesNotUnderstand) {
  const std::string config = "Error: DIR/config.json: ";
  EXPECT_EQ(config_error({{"kv_lora_rank", 0}}),
            "Format" + config + "kv_lora_rank is 0, expected 1 to 1073741824");
  EXPECT_EQ(config_error({{"qk_rope_head_dim", 7}}),
            "FormatError: DIR: config: head dim 13, expected an even number for rope");
  EXPECT_EQ(config_error({{"num_key_value_heads", 1}}),
            "FormatError: DIR: config: 1 kv heads made of a latent, expected 5 as there are heads");
  EXPECT_EQ(config_error({{"attention_bias", true}}),
            "Config" + config +
                "attention_bias is true, which is not supported with latent attention, expected "
                "false");
  EXPECT_EQ(config_error({{"scoring_func", "softmax"}}),
            "Config" + config + "scoring_func 'softmax' is not supported, expected 'sigmoid'");
  EXPECT_EQ(config_error({{"topk_method", "greedy"}}),
            "Config" + config + "topk_method 'greedy' is not supported, expected 'noaux_tc'");
  EXPECT_EQ(config_error({{"moe_layer_freq", 2}}),
            "Config" + config + "moe_layer_freq is 2, which is not supported, expected 1");
}

TEST(LatentAttention, NamesWaysToChooseExpertsThatAFamilyDoesNotHave) {
  EXPECT_EQ(config_error({{"norm_topk_prob", true}}, "deepseek_v2"),
            "ConfigError: DIR/config.json: norm_topk_prob is true, which is not supported, "
            "expected false");
  EXPECT_EQ(config_error({{"topk_method", "noaux_tc"}}, "deepseek_v2"),
            "ConfigError: DIR/config.json: topk_method 'noaux_tc' is not supported, expected one "
            "of [greedy, group_limited_greedy]");
  EXPECT_EQ(config_error({{"mlp_layer_types", {"dense", "sparse"}}}, "glm4_moe_lite"),
            "FormatError: DIR/config.json: mlp_layer_types: 2 layers, expected 3");
  EXPECT_EQ(config_error({{"mlp_layer_types", {"dense", "sparse", "linear"}}}, "glm4_moe_lite"),
            "ConfigError: DIR/config.json: mlp_layer_types: 'linear' is not supported, expected "
            "one of [dense, sparse]");
}

TEST(LatentAttention, TakesTheDefaultsOfTransformersForMissingKeys) {
  json config =
      json::parse(core::read_text_file(test::family_path("deepseek_v3", "config.json"), 1 << 20));
  for (const char* key : {"kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
                          "v_head_dim", "n_group", "topk_group", "routed_scaling_factor",
                          "n_shared_experts", "first_k_dense_replace", "rope_interleave"}) {
    config.erase(key);
  }
  const ModelConfig read = config_from_json(config, "here");
  EXPECT_EQ(read.latent, (LatentConfig{512, 1536, 128}));
  EXPECT_EQ(read.head_dim, 192);
  EXPECT_EQ(read.rope_dims, 64);
  EXPECT_TRUE(read.turns_neighbours);
  EXPECT_EQ(read.experts.num_groups, 8);
  EXPECT_EQ(read.experts.groups_per_token, 4);
  EXPECT_EQ(read.experts.weights_scale, 2.5);
  EXPECT_EQ(read.experts.plain_layers, (std::vector<int64_t>{0, 1, 2}));
}

}  // namespace
}  // namespace weft::models
