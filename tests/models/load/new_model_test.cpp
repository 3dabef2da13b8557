#include "weft/models/load/new_model.h"

#include <map>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "tests/ops/tensor_checks.h"
#include "weft/nn/parallel/parameter_info.h"

namespace weft::models {
namespace {

using dist::Group;
using test::model_data;
using test::on_ranks;
using testing::error_text;

using Shapes = std::map<std::string, std::vector<int64_t>>;

const std::vector<std::string> kNewFamilies = {"llama",     "llama_bias", "mistral",
                                               "qwen2",     "qwen3",      "mixtral",
                                               "qwen2_moe", "qwen3_moe",  "qwen3_moe_mixed"};

std::shared_ptr<const io::TensorFile> family_file(const std::string& name) {
  return io::TensorFile::open(model_data("families/" + name));
}

Shapes shapes_of(const io::TensorFile& file) {
  Shapes shapes;
  for (const io::TensorMeta& tensor : file.tensors()) shapes[tensor.name] = tensor.shape;
  return shapes;
}

Shapes shapes_of(const CausalLM& model) {
  Shapes shapes;
  for (const nn::ParameterInfo& info : nn::describe_parameters(model)) {
    EXPECT_TRUE(shapes.emplace(info.name, info.sizes).second) << info.name << " twice";
  }
  return shapes;
}

ModelConfig small_llama() {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 50;
  config.width = 36;
  config.num_layers = 2;
  config.num_heads = 9;
  config.num_kv_heads = 3;
  config.ffn_width = 40;
  config.max_positions = 64;
  return config;
}

TEST(NewModel, HasTheNamesAndSizesOfEveryFamilysFiles) {
  on_ranks(
      [](const Group& group) {
        for (const std::string& name : kNewFamilies) {
          const auto file = family_file(name);
          const ModelConfig config = read_config(*file);
          EXPECT_EQ(shapes_of(*header_of(config)), shapes_of(*file)) << name;
          EXPECT_EQ(shapes_of(*make_model(config, group)), shapes_of(*file)) << name;
        }
      },
      {1, 2});
}

// As a stage of a pipeline, or a model cut short, may have.
TEST(NewModel, MayHaveASharedExpertAndNoLayerWithExperts) {
  ModelConfig config = read_config(*family_file("qwen2_moe"));
  ASSERT_GT(config.experts.shared_ffn_width, 0);
  config.experts.layer_step = config.num_layers + 1;
  for (const auto& [name, shape] : shapes_of(*make_model(config, Group()))) {
    EXPECT_EQ(name.find("expert"), std::string::npos) << name;
  }
}

TEST(NewModel, ListsParametersInTheFilesOrderOfLayers) {
  ModelConfig config = small_llama();
  config.num_layers = 1;
  std::vector<std::string> names;
  const auto model = make_model(config, Group());
  for (const nn::ParameterInfo& info : nn::describe_parameters(*model)) names.push_back(info.name);
  const std::string layer = "model.layers.0.";
  EXPECT_EQ(names, (std::vector<std::string>{
                       "model.embed_tokens.weight", layer + "input_layernorm.weight",
                       layer + "self_attn.q_proj.weight", layer + "self_attn.k_proj.weight",
                       layer + "self_attn.v_proj.weight", layer + "self_attn.o_proj.weight",
                       layer + "post_attention_layernorm.weight", layer + "mlp.gate_proj.weight",
                       layer + "mlp.up_proj.weight", layer + "mlp.down_proj.weight",
                       "model.norm.weight", "lm_head.weight"}));
  EXPECT_TRUE(model->is_training());
}

TEST(NewModel, BeginsAlikeOnAnyNumberOfRanks) {
  on_ranks(
      [](const Group& group) {
        for (const std::string name : {"llama_bias", "qwen2_moe"}) {
          const ModelConfig config = read_config(*family_file(name));
          const auto cut = make_model(config, group, {7, 0.02, at::kBFloat16});
          const auto whole = make_model(config, Group(), {7, 0.02, at::kBFloat16});
          const auto parts = nn::describe_parameters(*cut),
                     wholes = nn::describe_parameters(*whole);
          ASSERT_EQ(parts.size(), wholes.size());
          for (size_t i = 0; i < parts.size(); ++i) {
            at::Tensor expected = wholes[i].tensor.detach();
            if (parts[i].cut) {
              std::vector<at::Tensor> ranges;
              for (const shard::Range& range : parts[i].cut->of(group.rank())) {
                ranges.push_back(expected.narrow(parts[i].cut->dim, range.start, range.length));
              }
              expected = at::cat(ranges, parts[i].cut->dim);
            }
            EXPECT_TRUE(at::equal(parts[i].tensor, expected)) << name << " " << parts[i].name;
          }
        }
      },
      {2, 3});
}

TEST(NewModel, DrawsMatricesFromANormalDistributionAndTheRestIsNeutral) {
  ModelConfig config = small_llama();
  config.has_qkv_bias = config.has_output_bias = config.has_mlp_bias = true;
  const auto model = make_model(config, Group(), {1, 0.5, at::kFloat});
  double squares = 0, sum = 0, count = 0;
  std::vector<float> firsts;
  for (const nn::ParameterInfo& info : nn::describe_parameters(*model)) {
    const at::Tensor values = info.tensor.detach();
    EXPECT_TRUE(info.tensor.requires_grad()) << info.name;
    if (info.sizes.size() == 1) {
      EXPECT_TRUE((values == (info.name.ends_with(".bias") ? 0 : 1)).all().item<bool>())
          << info.name;
      continue;
    }
    sum += values.sum().item<double>();
    squares += values.square().sum().item<double>();
    count += static_cast<double>(values.numel());
    for (const float other : firsts) EXPECT_NE(values.flatten()[0].item<float>(), other);
    firsts.push_back(values.flatten()[0].item<float>());
  }
  EXPECT_NEAR(std::sqrt(squares / count), 0.5, 0.02);
  EXPECT_NEAR(sum / count, 0, 0.02);
  const auto other = make_model(config, Group(), {2, 0.5, at::kFloat});
  EXPECT_NE(other->parameters()[0].flatten()[0].item<float>(), firsts[0]);
}

TEST(NewModel, FillsInWhatFollowsFromOtherSizes) {
  ModelConfig config = small_llama();
  config.num_kv_heads = 0;
  EXPECT_EQ(complete_config(config).num_kv_heads, 9);
  EXPECT_EQ(complete_config(config).head_dim, 4);
}

TEST(NewModel, RefusesConfigurationsThatMakeNoModel) {
  const auto error = [](void (*change)(ModelConfig&)) {
    ModelConfig config = small_llama();
    change(config);
    return error_text([&] { make_model(config, Group()); });
  };
  EXPECT_EQ(error([](ModelConfig& c) { c.family = "gpt"; }),
            "ConfigError: models: unknown family 'gpt', expected one of [llama, mistral, mixtral, "
            "qwen2, qwen3, qwen2_moe, qwen3_moe, smollm3, granite, phi3, olmo2, "
            "gemma2, gemma3_text, gemma4_text, gpt_oss, ministral3, glm4, glm4_moe, lfm2, "
            "qwen3_next, qwen3_5_text, "
            "qwen3_5_moe_text, deepseek_v3, deepseek_v2, glm4_moe_lite]");
  EXPECT_EQ(error([](ModelConfig& c) { c.width = 35; }),
            "ConfigError: models.make_model: width 35 of 9 heads, expected a multiple; or set "
            "head_dim");
  EXPECT_EQ(error([](ModelConfig& c) { c.ffn_width = 0; }),
            "ConfigError: models.make_model: config: ffn width is 0, expected 1 to 2147483648");
  EXPECT_EQ(error([](ModelConfig& c) { c.num_kv_heads = 2; }),
            "ConfigError: models.make_model: config: 9 heads over 2 kv heads, expected a multiple");
}

}  // namespace
}  // namespace weft::models
