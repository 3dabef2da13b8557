// What a rank keeps of a model's state, counted.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <vector>

#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/train/optimizer/optimizer.h"
#include "weft/train/psdp/sharded_module.h"

namespace weft::train {
namespace {

// Large enough that padding is little of it.
class WideImpl : public torch::nn::Module {
 public:
  WideImpl() : head_(register_module("head", torch::nn::Linear(kWidth, 70))) {
    for (size_t i = 0; i < 3; ++i) {
      blocks_.push_back(
          register_module(core::join("block_", i), torch::nn::Linear(kWidth, kWidth)));
    }
  }
  std::vector<std::shared_ptr<torch::nn::Module>> units() const {
    return {blocks_[0].ptr(), blocks_[1].ptr(), blocks_[2].ptr()};
  }
  at::Tensor forward(at::Tensor x) {
    for (torch::nn::Linear& block : blocks_) x = at::silu(block->forward(x));
    return head_->forward(x);
  }
  static constexpr int64_t kWidth = 100;

 private:
  torch::nn::Linear head_;
  std::vector<torch::nn::Linear> blocks_;
};
TORCH_MODULE(Wide);

uint64_t state_bytes(Optimizer& optimizer) {
  uint64_t bytes = 0;
  for (const StateTensor& each : optimizer.state()) {
    if (each.state != "master") bytes += each.values.nbytes();
  }
  return bytes;
}

std::unique_ptr<Optimizer> adamw_of(const ShardedModule& sharded) {
  std::vector<OwnedSlice> slices;
  for (const OwnedPart& part : sharded.owned_parts()) {
    slices.push_back({part.slice, part.master, part.gradient, 0.1});
  }
  return make_optimizer(AdamwOptions(), slices, sharded.groups().all);
}

// Counted after a step of 4 microbatches on (2, 2, 1): parameters and gradients are cut over data,
// masters and optimizer state over replica and data.
TEST(StateShares, AreOneOverDataAndOneOverReplicaAndData) {
  test::run_ranks(4, [](const dist::World& world) {
    const dist::Mesh mesh(world, {{"replica", 2}, {"data", 2}, {"model", 1}});
    at::manual_seed(7);
    Wide model;
    double whole = 0;
    for (const at::Tensor& each : model->parameters()) whole += static_cast<double>(each.numel());
    ShardOptions options;
    options.dtype = at::kBFloat16;
    const auto sharded = shard_module(*model, mesh, model->units(), options);
    const auto optimizer = adamw_of(*sharded);
    for (int i = 0; i < 4; ++i) {
      const at::Tensor x = at::ones({2, WideImpl::kWidth}, at::kBFloat16);
      sharded->backward(model->forward(x).square().sum());
    }
    sharded->finish_gradients();
    optimizer->step(1e-3, 1);
    sharded->publish();
    uint64_t parameters = 0, gradients = 0, masters = 0, reduced = 0;
    for (const auto& unit : sharded->units()) {
      parameters += unit->parameter_bytes();
      gradients += unit->gradient_bytes();
      masters += unit->master_bytes();
    }
    for (const OwnedPart& part : sharded->owned_parts()) reduced += part.gradient.nbytes();
    const auto expect_share = [&](uint64_t bytes, double element, double ranks) {
      const double share = element * whole / ranks;
      EXPECT_NEAR(static_cast<double>(bytes), share, 0.02 * share);
    };
    expect_share(parameters, 2, 2);
    expect_share(gradients, 4, 2);
    expect_share(reduced, 4, 4);
    expect_share(masters, 4, 4);
    expect_share(state_bytes(*optimizer), 8, 4);
  });
}

}  // namespace
}  // namespace weft::train
