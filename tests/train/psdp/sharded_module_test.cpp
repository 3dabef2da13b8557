#include "weft/train/psdp/sharded_module.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <map>
#include <string>

#include "tests/nn/parameter_part.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/nn/linear/linear.h"
#include "weft/ops/collectives.h"

// Shape letters: B sequences, T tokens, D width, F ffn width, V vocabulary.

namespace weft::train {
namespace {

constexpr int64_t kB = 12, kT = 5, kD = 6, kF = 9, kV = 11;
constexpr int kSteps = 5;

// A module of one's own, of libtorch's layers and two linear ones that can be cut over ranks.
class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl()
      : norm_(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kD})))),
        up_(register_module("up", nn::Linear(torch::nn::Linear(kD, kF)))),
        down_(register_module("down", nn::Linear(torch::nn::Linear(kF, kD)))) {}

  void shard(const dist::Group& group) {
    up_->shard(nn::ShardKind::kAllToSharded, group);
    down_->shard(nn::ShardKind::kShardedToAll, group);
  }
  at::Tensor forward(const at::Tensor& x_BTD) {
    return x_BTD + down_->forward(at::silu(up_->forward(norm_->forward(x_BTD))));
  }

 private:
  torch::nn::LayerNorm norm_;
  nn::Linear up_, down_;
};
TORCH_MODULE(Block);

class ModelImpl : public torch::nn::Module {
 public:
  ModelImpl()
      : embedding_(register_module("embedding", torch::nn::Embedding(kV, kD))),
        blocks_{Block(), Block(), Block()},
        head_(register_module("head", torch::nn::Linear(kD, kV))) {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      register_module(core::join("block_", i), blocks_[i]);
    }
  }

  void shard(const dist::Group& group) {
    for (Block& block : blocks_) block->shard(group);
  }
  std::vector<std::shared_ptr<torch::nn::Module>> units() const {
    return {blocks_[0].ptr(), blocks_[1].ptr(), blocks_[2].ptr()};
  }
  at::Tensor forward(const at::Tensor& ids_BT) {
    at::Tensor x_BTD = embedding_->forward(ids_BT);
    for (Block& block : blocks_) x_BTD = block->forward(x_BTD);
    return head_->forward(x_BTD);
  }

 private:
  torch::nn::Embedding embedding_;
  std::vector<Block> blocks_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Model);

struct Data {
  at::Tensor ids_BT;
  // Sequences differ in how many of their targets count; some have none.
  at::Tensor targets_BT;
  int64_t tokens = 0;
};

Data make_data(int step) {
  at::manual_seed(100 + static_cast<uint64_t>(step));
  Data data;
  data.ids_BT = at::randint(kV, {kB, kT}, at::kLong);
  data.targets_BT = at::randint(kV, {kB, kT}, at::kLong);
  for (int64_t b = 0; b < kB; ++b) data.targets_BT[b].narrow(0, 0, b % (kT + 1)).fill_(-100);
  data.tokens = (data.targets_BT >= 0).sum().item<int64_t>();
  return data;
}

at::Tensor share_of_loss(Model& model, const Data& data, int64_t start, int64_t count) {
  const at::Tensor logits = model->forward(data.ids_BT.narrow(0, start, count));
  const at::Tensor sum = at::cross_entropy_loss(
      logits.view({-1, kV}), data.targets_BT.narrow(0, start, count).reshape({-1}), {},
      at::Reduction::Sum, -100);
  return sum / static_cast<double>(data.tokens);
}

Model new_model() {
  at::manual_seed(7);
  return Model();
}

struct History {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, at::Tensor> parameters;
};

// Plain libtorch on one process: what everything is compared with.
History run_whole() {
  Model model = new_model();
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  History run;
  for (int step = 0; step < kSteps; ++step) {
    const Data data = make_data(step);
    optimizer.zero_grad();
    const at::Tensor loss = share_of_loss(model, data, 0, kB);
    loss.backward();
    double squares = 0;
    for (const at::Tensor& p : model->parameters()) {
      squares += p.grad().square().sum().item<double>();
    }
    optimizer.step();
    run.losses.push_back(loss.item<double>());
    run.norms.push_back(std::sqrt(squares));
  }
  for (const auto& info : nn::describe_parameters(*model)) {
    run.parameters[info.name] = info.tensor.detach();
  }
  return run;
}

// libtorch's optimizer on what this rank owns.
torch::optim::AdamW optimizer_of(const std::vector<OwnedPart>& parts) {
  std::vector<at::Tensor> masters;
  for (const OwnedPart& part : parts) {
    at::Tensor master = part.master.detach();
    master.mutable_grad() = part.gradient;
    masters.push_back(master);
  }
  return torch::optim::AdamW(masters, torch::optim::AdamWOptions(1e-2));
}

struct ModuleCase {
  int64_t replica, data, model, microbatches;
};

double backward_all(ShardedModule& sharded, Model& model, const Data& data, int64_t microbatches) {
  const dist::Group& batch = sharded.groups().batch;
  const int64_t own = kB / batch.size();
  const int64_t rows = own / microbatches;
  double loss = 0;
  for (int64_t m = 0; m < microbatches; ++m) {
    const at::Tensor part = share_of_loss(model, data, batch.rank() * own + m * rows, rows);
    loss += part.item<double>();
    sharded.backward(part);
  }
  at::Tensor total = at::full({1}, loss, at::kDouble);
  batch.all_reduce(total);
  return total.item<double>();
}

void expect_whole_parameters(ShardedModule& sharded, Model& model, const History& whole) {
  for (const auto& unit : sharded.units()) unit->gather();
  for (const auto& info : nn::describe_parameters(*model)) {
    const at::Tensor expected =
        test::part_of(whole.parameters.at(info.name), info, sharded.groups().model.rank());
    EXPECT_TRUE(at::allclose(info.tensor, expected, 1e-4, 1e-5)) << info.name;
  }
  sharded.release();
}

void expect_equal_to_whole(const dist::World& world, const ModuleCase& c, const History& whole) {
  SCOPED_TRACE(core::join("mesh (", c.replica, ", ", c.data, ", ", c.model, "), ", c.microbatches,
                          " microbatches"));
  const dist::Mesh mesh(world, {{"replica", c.replica}, {"data", c.data}, {"model", c.model}});
  Model model = new_model();
  model->shard(mesh.group({"model"}));
  const auto sharded = shard_module(*model, mesh, model->units());
  auto optimizer = optimizer_of(sharded->owned_parts());
  for (int step = 0; step < kSteps; ++step) {
    const double loss = backward_all(*sharded, model, make_data(step), c.microbatches);
    sharded->finish_gradients();
    const double norm = sharded->gradient_norm();
    optimizer.step();
    sharded->publish();
    EXPECT_NEAR(loss, whole.losses[static_cast<size_t>(step)], 1e-5) << "step " << step;
    EXPECT_NEAR(norm, whole.norms[static_cast<size_t>(step)], 1e-5) << "step " << step;
  }
  expect_whole_parameters(*sharded, model, whole);
}

void expect_all_equal(int ranks, const std::vector<ModuleCase>& meshes) {
  test::run_ranks(ranks, [&](const dist::World& world) {
    const History whole = run_whole();
    for (ModuleCase each : meshes) {
      for (const int64_t microbatches : {1, 2, 4}) {
        if (kB / (each.replica * each.data) % microbatches != 0) continue;
        each.microbatches = microbatches;
        expect_equal_to_whole(world, each, whole);
      }
    }
  });
}

TEST(ShardedModule, TrainsAsTheWholeOnOneAndTwoRanks) {
  expect_all_equal(1, {{1, 1, 1, 1}});
  expect_all_equal(2, {{2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}});
}

TEST(ShardedModule, TrainsAsTheWholeOnThreeAndFourRanks) {
  expect_all_equal(3, {{1, 3, 1, 1}, {3, 1, 1, 1}});
  expect_all_equal(4, {{2, 2, 1, 1}, {2, 1, 2, 1}, {1, 2, 2, 1}});
}

// The promise: whatever the number of microbatches, replicas exchange each gradient once.
TEST(ShardedModule, CrossesReplicasOncePerStep) {
  test::run_ranks(4, [](const dist::World& world) {
    const dist::Mesh mesh(world, {{"replica", 2}, {"data", 2}});
    Model model = new_model();
    const auto sharded = shard_module(*model, mesh, model->units());
    const auto units = static_cast<uint64_t>(sharded->units().size());
    const auto before = sharded->groups().replica.traffic();
    backward_all(*sharded, model, make_data(0), 3);
    EXPECT_EQ(sharded->groups().replica.traffic(), before);
    sharded->finish_gradients();
    sharded->publish();
    const auto after = sharded->groups().replica.traffic();
    uint64_t share_bytes = 0;
    for (const auto& unit : sharded->units()) share_bytes += unit->parameter_bytes();
    EXPECT_EQ(after.reduce_scatter, (dist::OperationTraffic{units, share_bytes}));
    EXPECT_EQ(after.all_gather, (dist::OperationTraffic{units, share_bytes}));
    EXPECT_EQ(after.all_reduce.calls, 0U);
  });
}

void expect_gathered_units(const dist::Mesh& mesh, bool prefetch) {
  Model model = new_model();
  ShardOptions options;
  options.prefetch = prefetch;
  const auto sharded = shard_module(*model, mesh, model->units(), options);
  backward_all(*sharded, model, make_data(0), 2);
  uint64_t root = 0, block = 0;
  for (const auto& unit : sharded->units()) {
    uint64_t& bytes = unit->name() == "root" ? root : block;
    bytes = 4 * static_cast<uint64_t>(unit->layout().length());
    EXPECT_EQ(unit->is_gathered(), unit->name() == "root");
    EXPECT_EQ(unit->parameter_bytes() * 2, bytes);
    EXPECT_EQ(unit->gradient_bytes() * 2, bytes);
  }
  EXPECT_EQ(sharded->peak_gathered_bytes(), root + block * (prefetch ? 2 : 1));
  // 3 blocks in forward and 2 more in backward, twice; the root once.
  EXPECT_EQ(sharded->groups().data.traffic().all_gather,
            (dist::OperationTraffic{11, 10 * block + root}));
  EXPECT_EQ(sharded->groups().data.traffic().reduce_scatter.calls, 8U);
}

TEST(ShardedModule, KeepsOneUnitGatheredBesideTheRootAndOneMoreWithPrefetching) {
  test::run_ranks(2, [](const dist::World& world) {
    expect_gathered_units(dist::Mesh(world, {{"data", 2}, {"model", 1}}), true);
  });
  test::run_ranks(2, [](const dist::World& world) {
    expect_gathered_units(dist::Mesh(world, {{"data", 2}, {"model", 1}}), false);
  });
}

TEST(ShardedModule, UsesHalvesAndKeepsFloat32Masters) {
  test::run_ranks(2, [](const dist::World& world) {
    const dist::Mesh mesh(world, {{"replica", 1}, {"data", 2}});
    Model model = new_model();
    const History whole = run_whole();
    ShardOptions options;
    options.dtype = at::kBFloat16;
    const auto sharded = shard_module(*model, mesh, model->units(), options);
    auto optimizer = optimizer_of(sharded->owned_parts());
    for (int step = 0; step < kSteps; ++step) {
      const double loss = backward_all(*sharded, model, make_data(step), 2);
      sharded->finish_gradients();
      optimizer.step();
      sharded->publish();
      EXPECT_NEAR(loss, whole.losses[static_cast<size_t>(step)], 0.02) << "step " << step;
    }
    for (const OwnedPart& part : sharded->owned_parts()) {
      EXPECT_EQ(part.master.scalar_type(), at::kFloat);
    }
    EXPECT_EQ(model->parameters().front().scalar_type(), at::kBFloat16);
  });
}

TEST(ShardedModule, RefusesModulesItCannotCut) {
  test::run_ranks(1, [](const dist::World& world) {
    const dist::Mesh mesh(world, {{"data", 1}});
    torch::nn::Module empty;
    const auto message = [&](auto&& run) -> std::string {
      try {
        run();
      } catch (const core::ConfigError& error) {
        return error.what();
      }
      return "no error";
    };
    EXPECT_EQ(message([&] { shard_module(empty, mesh, {}); }),
              "train.shard_module: the module has no parameter that needs a gradient");
    Model model = new_model();
    EXPECT_EQ(message([&] {
                shard_module(*model, mesh, {model.ptr(), model->units()[0]});
              }),
              "train.shard_module: units 0 and 1 share norm.weight; make them one unit");
    ShardOptions options;
    options.partial_gradients = {"no.such"};
    EXPECT_EQ(message([&] { shard_module(*model, mesh, {}, options); }),
              "train.shard_module: partial_gradients: no trainable parameter 'no.such'");
  });
}

}  // namespace
}  // namespace weft::train
