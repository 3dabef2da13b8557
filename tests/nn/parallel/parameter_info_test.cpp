#include "weft/nn/parallel/parameter_info.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/support/run_ranks.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/linear/linear.h"
#include "weft/nn/parallel/parallel_embedding.h"
#include "weft/nn/parallel/vocab_parallel.h"

namespace weft::nn {
namespace {

// An embedding that is also the head, and a feed-forward layer.
class ModelImpl : public torch::nn::Module {
 public:
  explicit ModelImpl(const dist::Group& group)
      : embedding_(register_module("embedding", VocabParallelEmbedding(11, 6, group))),
        up_(register_module("up", Linear(torch::nn::Linear(6, 8)))),
        down_(register_module("down", Linear(torch::nn::Linear(8, 6)))),
        norm_(register_module("norm", RMSNorm(at::ones({6}), 1e-5, true))),
        head_(register_module("head", VocabParallelHead(embedding_->inner(), 11, group))) {
    up_->shard(ShardKind::kAllToSharded, group);
    down_->shard(ShardKind::kShardedToAll, group);
  }

 private:
  VocabParallelEmbedding embedding_;
  Linear up_, down_;
  RMSNorm norm_;
  VocabParallelHead head_;
};

const ParameterInfo& find(const std::vector<ParameterInfo>& all, const std::string& name) {
  for (const ParameterInfo& info : all) {
    if (info.name == name) return info;
  }
  ADD_FAILURE() << "no parameter " << name;
  return all.front();
}

TEST(ParameterInfo, NamesEachOnceWithItsWholeAndItsCut) {
  test::run_ranks(2, [](const dist::World& world) {
    ModelImpl model(world.group());
    const auto all = describe_parameters(model);
    std::vector<std::string> names;
    for (const ParameterInfo& info : all) names.push_back(info.name);
    EXPECT_EQ(names, (std::vector<std::string>{"embedding.weight", "up.weight", "up.bias",
                                               "down.bias", "down.weight", "norm.weight"}));
    const ParameterInfo& embedding = find(all, "embedding.weight");
    EXPECT_EQ(embedding.sizes, (std::vector<int64_t>{11, 6}));
    EXPECT_EQ(embedding.cut->lengths(), (std::vector<int64_t>{6, 5}));
    EXPECT_EQ(find(all, "up.weight").cut->dim, 0);
    EXPECT_EQ(find(all, "up.bias").sizes, (std::vector<int64_t>{8}));
    EXPECT_EQ(find(all, "up.bias").cut->dim, 0);
    EXPECT_EQ(find(all, "down.weight").cut->dim, 1);
    EXPECT_EQ(find(all, "down.weight").sizes, (std::vector<int64_t>{6, 8}));
    EXPECT_FALSE(find(all, "down.bias").cut.has_value());
    EXPECT_FALSE(find(all, "norm.weight").cut.has_value());
  });
}

TEST(ParameterInfo, SeesAdaptersAloneOfALayerThatHasOne) {
  test::run_ranks(2, [](const dist::World& world) {
    ModelImpl model(world.group());
    apply_lora(model, {"up", "down"}, {2, 4, 1});
    const auto all = describe_parameters(model);
    ASSERT_EQ(all.size(), 4U);
    EXPECT_FALSE(find(all, "up.lora_a").cut.has_value());
    EXPECT_EQ(find(all, "up.lora_b").cut->dim, 0);
    EXPECT_EQ(find(all, "up.lora_b").sizes, (std::vector<int64_t>{8, 2}));
    EXPECT_EQ(find(all, "down.lora_a").cut->dim, 1);
    EXPECT_EQ(find(all, "down.lora_a").sizes, (std::vector<int64_t>{2, 8}));
    EXPECT_FALSE(find(all, "down.lora_b").cut.has_value());
  });
}

TEST(ParameterInfo, KnowsAnEmbeddingsColumnsAndModulesCutInPlace) {
  test::run_ranks(2, [](const dist::World& world) {
    torch::nn::Module model;
    model.register_module("table", ParallelEmbedding(4, 7, world.group()));
    auto experts = std::make_shared<torch::nn::Module>();
    experts->register_parameter("weight", at::ones({5, 3, 2}));
    model.register_module("experts", experts);
    const auto shards = shard_inplace(
        *experts, [](const auto&, const auto&) { return ParameterRule::cut(0); }, world.group());
    InplaceShards inplace;
    for (const auto& [path, shard] : shards) inplace["experts." + path] = shard;
    const auto all = describe_parameters(model, inplace);
    EXPECT_EQ(find(all, "table.weight").sizes, (std::vector<int64_t>{4, 7}));
    EXPECT_EQ(find(all, "experts.weight").cut->lengths(), (std::vector<int64_t>{3, 2}));
    EXPECT_EQ(find(all, "experts.weight").sizes, (std::vector<int64_t>{5, 3, 2}));
  });
}

}  // namespace
}  // namespace weft::nn
