#include "weft/models/load/stage.h"

#include <map>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/load/deferred_model.h"
#include "weft/models/load/load.h"
#include "weft/nn/parallel/parameter_info.h"

namespace weft::models {
namespace {

using dist::Group;
using test::model_data;
using test::on_ranks;
using testing::error_text;

std::shared_ptr<const io::TensorFile> file_of(const std::string& name) {
  return io::TensorFile::open(model_data("training/" + name + "/model.safetensors"));
}

std::shared_ptr<CausalLM> load_stage(const std::string& name, const Group& group,
                                     const StageLayers& layers) {
  LoadOptions options;
  options.is_trainable = true;
  options.layers = layers;
  return load_model(*file_of(name), group, options).model;
}

std::map<std::string, at::Tensor> parameters_of(const CausalLM& model) {
  std::map<std::string, at::Tensor> parameters;
  for (const nn::ParameterInfo& info : nn::describe_parameters(model)) {
    parameters[info.name] = info.tensor;
  }
  return parameters;
}

TEST(Stage, HasItsLayersUnderTheWholesNames) {
  on_ranks(
      [](const Group& group) {
        for (const std::string name : {"tied", "untied"}) {
          const auto whole = parameters_of(*load_stage(name, group, std::nullopt));
          size_t count = 0;
          for (const int64_t layer : {0, 1}) {
            const auto stage = load_stage(name, group, shard::Range{layer, 1});
            EXPECT_EQ(stage->blocks().size(), 1U);
            for (const auto& [key, tensor] : parameters_of(*stage)) {
              ASSERT_TRUE(whole.contains(key)) << key;
              EXPECT_TRUE(at::equal(tensor, whole.at(key))) << key;
              ++count;
            }
          }
          // A tied embedding is on both.
          EXPECT_EQ(count, whole.size() + (name == "tied" ? 1 : 0));
        }
      },
      {1, 2});
}

TEST(Stage, IsDrawnAndDeferredAsTheWhole) {
  ModelConfig config = read_config(*file_of("tied"));
  const auto whole = parameters_of(*make_model(config, Group(), {9}));
  InitOptions options;
  options.seed = 9;
  options.layers = shard::Range{1, 1};
  const auto deferred = defer_model(config, Group(), options);
  const auto parameters = parameters_of(*deferred.model);
  EXPECT_TRUE(parameters.contains("model.norm.weight"));
  for (const auto& [name, tensor] : parameters) {
    EXPECT_TRUE(at::equal(deferred.values(name), whole.at(name))) << name;
  }
}

TEST(Stage, FollowsTheStageBefore) {
  on_ranks(
      [](const Group& group) {
        for (const std::string name : {"tied", "untied"}) {
          const auto whole = load_stage(name, group, std::nullopt);
          const auto first = load_stage(name, group, shard::Range{0, 1});
          const auto last = load_stage(name, group, shard::Range{1, 1});
          const at::Tensor ids_BT = at::arange(12).view({2, 6});
          const at::Tensor x_BTD = first->forward_stage({ids_BT}, {});
          const at::Tensor input = last->make_stage_input({ids_BT});
          EXPECT_EQ(input.sizes(), x_BTD.sizes());
          EXPECT_EQ(input.scalar_type(), x_BTD.scalar_type());
          const at::Tensor loss = last->loss_sum(last->forward_stage({ids_BT}, x_BTD), ids_BT);
          EXPECT_TRUE(at::equal(loss, whole->loss_sum(whole->forward({ids_BT}), ids_BT))) << name;
        }
      },
      {1, 2});
}

TEST(Stage, IsOfLayersThatTheModelHas) {
  EXPECT_EQ(make_stage(std::nullopt, 3).layers, (shard::Range{0, 3}));
  const Stage middle = make_stage(shard::Range{1, 1}, 3);
  EXPECT_FALSE(middle.is_first || middle.is_last);
  EXPECT_EQ(
      error_text([] {
        make_stage(shard::Range{2, 2}, 3);
      }),
      "ConfigError: models.Stage: layers from 2 to 4, expected at least one of the model's 3");
  EXPECT_EQ(
      error_text([] {
        make_stage(shard::Range{1, 0}, 3);
      }),
      "ConfigError: models.Stage: layers from 1 to 1, expected at least one of the model's 3");
}

}  // namespace
}  // namespace weft::models
