// A decoder's checkpoint on eight ranks, on seven, and on eight again.
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/train/checkpoint/trained.h"
#include "weft/core/error.h"
#include "weft/models/load/deferred_model.h"
#include "weft/train/checkpoint/folder.h"
#include "weft/train/checkpoint/load.h"
#include "weft/train/psdp/sharded_module.h"

namespace weft::train {
namespace {

using testing::folder_of;
using testing::MeshPlace;
using testing::read_whole;
using testing::with_folder;
using weft::testing::TempDir;

// No size but the number of layers is divided by 2, and none but the heads by 7.
models::ModelConfig odd_config() {
  models::ModelConfig config;
  config.family = "llama";
  config.vocab_size = 127;
  config.width = 42;
  config.num_layers = 2;
  config.num_heads = 7;
  config.num_kv_heads = 7;
  config.head_dim = 6;
  config.ffn_width = 37;
  config.max_positions = 32;
  return config;
}

struct Training {
  dist::Mesh mesh;
  models::DeferredModel deferred;
  std::unique_ptr<ShardedModule> sharded;
  std::unique_ptr<Optimizer> optimizer;

  Training(const MeshPlace& sizes, const dist::World& world)
      : mesh(world, {{"replica", sizes.replica}, {"data", sizes.data}, {"model", sizes.model}}),
        deferred(models::defer_model(odd_config(), mesh.group({"model"}), {})) {
    ShardOptions options;
    options.values = deferred.values;
    options.partial_gradients = deferred.model->partial_parameters();
    sharded = shard_module(*deferred.model, mesh, deferred.model->blocks(), options);
    std::vector<OwnedSlice> slices;
    for (const OwnedPart& part : sharded->owned_parts()) {
      slices.push_back({part.slice, part.master, part.gradient, 0.1});
    }
    optimizer = make_optimizer(AdamwOptions{}, std::move(slices), sharded->groups().all);
  }

  void step() {
    const at::Tensor ids = at::arange(16, at::kLong).view({1, 16});
    sharded->backward(deferred.model->loss_sum(deferred.model->forward({ids}), ids));
    sharded->finish_gradients();
    optimizer->step(0.01, 1);
    sharded->publish();
  }
  void save(const std::string& folder, const dist::World& world) {
    save_checkpoint(folder, {1, optimizer->state(), "null"}, 2, world.group());
  }
};

// Loads `from` on a mesh and saves it as `to`.
void save_again(const TempDir& dir, const MeshPlace& sizes, const std::string& from,
                const std::string& to) {
  const auto body = [&](const dist::World& world) {
    Training training(sizes, world);
    const std::string folder = folder_of(dir) + "/";
    load_checkpoint(find_latest(folder + from).value(), training.optimizer->state(), true,
                    world.group());
    training.save(folder + to, world);
  };
  test::run_ranks(static_cast<int>(sizes.num_ranks()), body, with_folder(dir));
}

void expect_same_checkpoints(const TempDir& dir, const std::string& a, const std::string& b) {
  CheckpointReader first(find_latest(folder_of(dir) + "/" + a).value());
  CheckpointReader second(find_latest(folder_of(dir) + "/" + b).value());
  ASSERT_FALSE(first.manifest().parameters.empty());
  ASSERT_EQ(first.manifest().parameters.size(), second.manifest().parameters.size());
  for (const auto& [name, parameter] : first.manifest().parameters) {
    for (const char* state : {"master", "exp_avg", "exp_avg_sq"}) {
      EXPECT_EQ(read_whole(first, name, state), read_whole(second, name, state)) << name << state;
    }
  }
}

TEST(Reshard, FromEightRanksToSevenAndBackKeepsEveryBit) {
  const TempDir dir;
  const MeshPlace eight = {2, 2, 2};
  test::run_ranks(
      8,
      [&](const dist::World& world) {
        Training training(eight, world);
        training.step();
        training.save(folder_of(dir) + "/first", world);
      },
      with_folder(dir));
  for (const MeshPlace& seven : {MeshPlace{1, 1, 7}, {1, 7, 1}, {7, 1, 1}}) {
    const std::string name = core::join("seven_", seven.replica, seven.data, seven.model);
    save_again(dir, seven, "first", name);
    save_again(dir, eight, name, name + "_back");
    if (!test::is_rank()) {
      expect_same_checkpoints(dir, "first", name);
      expect_same_checkpoints(dir, "first", name + "_back");
    }
  }
}

}  // namespace
}  // namespace weft::train
