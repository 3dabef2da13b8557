// What would go wrong in silence: wholes that differ between ranks, cutting twice, and optimizers
// that were made before.

#include "weft/nn/linear/equal_wholes.h"

#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "tests/core/error_text.h"
#include "tests/nn/linear_cases.h"
#include "weft/nn/parallel/shard_inplace.h"
#include "weft/nn/parallel/shard_linear.h"
#include "weft/ops/collectives.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::on_ranks;
using test::seeded;
using testing::error_text;

constexpr ShardKind kBoth[] = {ShardKind::kAllToSharded, ShardKind::kShardedToAll};

const std::string kOneWhole =
    " than rank 0, expected one whole on all ranks; make it after one at::manual_seed or from one "
    "file, and cut it once";

TEST(EqualWholes, OneNumberThatDiffersIsSeenOnAllRanksBeforeAnythingIsCut) {
  on_ranks(
      [](const Group& group) {
        const auto change_last = [&](at::Tensor x) {
          if (group.rank() == 2) x.detach().view(-1)[-1] += 1;
        };
        const auto dense = dense_case(8, 6)();
        change_last(dense->named_parameters()["bias"]);
        const auto quantized = quantized_case(8, 64, 32)();
        change_last(quantized->named_buffers()["weight"]);
        for (const ShardKind kind : kBoth) {
          const bool by_rows = kind == ShardKind::kAllToSharded;
          const std::string features = by_rows ? "output features" : "input features";
          Linear place(dense);
          EXPECT_EQ(error_text([&] { place->shard(kind, group, {.name = "wq"}); }),
                    "CommError: nn.shard_linear: wq [8, 6], " + features +
                        ": rank 2 of group world has another bias" + kOneWhole);
          EXPECT_EQ(place->inner(), dense);
          EXPECT_EQ(error_text([&] { shard_linear(*quantized, kind, group); }),
                    "CommError: nn.shard_linear: linear [8, 64], " + features +
                        ": rank 2 of group world has another weight" + kOneWhole);
        }
        const auto rule = shard_rule("all-to-sharded");
        EXPECT_EQ(
            error_text([&] { shard_inplace(*dense, rule, group); }),
            "CommError: nn.shard_inplace: rank 2 of group world has another bias" + kOneWhole);
        const std::string other_cut =
            ": rank 1 of group world cuts other tensors than rank 0, or cuts them in another way, "
            "expected the same on all ranks";
        const ShardOptions options{.unit = group.rank() == 1 ? 2 : 1};
        EXPECT_EQ(error_text([&] { shard_linear(*dense_case(8, 6)(), kBoth[0], group, options); }),
                  "CommError: nn.shard_linear: linear [8, 6], output features" + other_cut);
      },
      {3});
}

TEST(EqualWholes, CuttingTwiceIsRefused) {
  on_ranks(
      [](const Group& group) {
        torch::nn::Linear up(8, 8);
        Linear cut = shard_linear(up, "all-to-sharded", group);
        const std::string twice = "CommError: nn.shard_linear: linear [4, 8], output features: ";
        EXPECT_EQ(error_text([&] { shard_linear(up, "all-to-sharded", group); }),
                  twice + "rank 1 of group world has another weight" + kOneWhole);
        torch::nn::Linear down(8, 8);
        shard_inplace(*down, "all-to-sharded", group);
        EXPECT_EQ(error_text([&] { shard_inplace(*down, "all-to-sharded", group); }),
                  "ConfigError: nn.shard_inplace: bias [4] is cut already over group world of 2 "
                  "ranks; unshard_inplace it first");
        EXPECT_EQ(down->weight.sizes(), (std::vector<int64_t>{4, 8}));
        // Parts that are equal on all ranks, and may be cut once more when they are whole again.
        torch::nn::Linear zeros(8, 8);
        for (const at::Tensor& parameter : zeros->parameters()) parameter.detach().zero_();
        const InplaceShards shards = shard_inplace(*zeros, "all-to-sharded", group);
        EXPECT_NE(error_text([&] {
                    shard_inplace(*zeros, "all-to-sharded", group);
                  }).find("bias [4] is cut already"),
                  std::string::npos);
        unshard_inplace(*zeros, shards, group);
        shard_inplace(*zeros, "all-to-sharded", group);
        EXPECT_EQ(zeros->weight.sizes(), (std::vector<int64_t>{4, 8}));
        // One inner layer in two places.
        const auto tied = dense_case(8, 8)();
        Linear one(tied), two(tied);
        one->shard(ShardKind::kAllToSharded, group);
        EXPECT_NE(
            error_text([&] { two->shard(ShardKind::kAllToSharded, group); }).find("cut it once"),
            std::string::npos);
      },
      {2});
}

struct TwoLinears {
  Linear up{nullptr}, down{nullptr};

  static TwoLinears make(const MakeLinear& up, const MakeLinear& down) {
    return {Linear(up()), Linear(down())};
  }
  std::vector<at::Tensor> parameters() const {
    auto all = up->parameters();
    for (const at::Tensor& each : down->parameters()) all.push_back(each);
    return all;
  }
  at::Tensor forward(const at::Tensor& x) { return down(at::silu(up(x))); }
};

template <typename Optimizer, typename Options>
std::vector<at::Tensor> trained(TwoLinears& chain, Optimizer&& optimizer,
                                const Options& before_steps) {
  before_steps();
  std::vector<at::Tensor> outputs;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const at::Tensor y = chain.forward(seeded({5, 10}, 9));
    outputs.push_back(y.detach());
    y.square().sum().backward();
    optimizer.step();
  }
  return outputs;
}

TEST(OptimizerMadeBefore, MovesTheRanksPartsAsItMovesTheWhole) {
  const auto dense_up = dense_case(18, 10), dense_down = dense_case(10, 18);
  const auto lora_up = lora_case(dense_up, at::kDouble),
             lora_down = lora_case(dense_down, at::kDouble);
  on_ranks([&](const Group& group) {
    for (const auto& [up, down] : {std::pair{dense_up, dense_down}, {lora_up, lora_down}}) {
      TwoLinears whole = TwoLinears::make(up, down), cut = TwoLinears::make(up, down);
      const torch::optim::AdamWOptions options(0.1);
      const auto expected = trained(whole, torch::optim::AdamW(whole.parameters(), options), [] {});
      const auto outputs = trained(cut, torch::optim::AdamW(cut.parameters(), options), [&] {
        shard_linear(cut.up, "all-to-sharded", group);
        shard_linear(cut.down, "sharded-to-all", group);
      });
      for (size_t step = 0; step < outputs.size(); ++step) {
        expect_close(outputs[step], expected[step], "step " + std::to_string(step), 1e-9);
      }
      EXPECT_FALSE(outputs[0].equal(outputs[2]));
      cut.up->unshard();
      cut.down->unshard();
      const auto moved = cut.parameters(), moved_whole = whole.parameters();
      for (size_t i = 0; i < moved.size(); ++i) {
        expect_close(moved[i], moved_whole[i], "parameter", 1e-9);
      }
    }
  });
}

TEST(OptimizerMadeBefore, FollowsTorchsLayersAndShardInplace) {
  on_ranks([](const Group& group) {
    const auto make = [] {
      at::manual_seed(3);
      return std::pair{torch::nn::Linear(6, 9), torch::nn::Linear(9, 6)};
    };
    auto [up, down] = make();
    auto [whole_up, whole_down] = make();
    const auto all = [](const auto& one, const auto& two) {
      auto parameters = one->parameters();
      for (const at::Tensor& each : two->parameters()) parameters.push_back(each);
      return parameters;
    };
    torch::optim::SGD optimizer(all(up, down), torch::optim::SGDOptions(0.1).momentum(0.9));
    torch::optim::SGD whole_optimizer(all(whole_up, whole_down),
                                      torch::optim::SGDOptions(0.1).momentum(0.9));
    Linear up_cut = shard_linear(up, "all-to-sharded", group);
    const InplaceShards shards = shard_inplace(*down, "sharded-to-all", group);
    const at::Tensor x = seeded({4, 6}, 5, at::kFloat);
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      whole_optimizer.zero_grad();
      const at::Tensor y = ops::mp_reduce(down(at::relu(up_cut(x))), group);
      const at::Tensor y_whole = whole_down(at::relu(whole_up(x)));
      expect_close(y, y_whole, "step " + std::to_string(step), 1e-5);
      y.square().sum().backward();
      y_whole.square().sum().backward();
      optimizer.step();
      whole_optimizer.step();
    }
    unshard_inplace(*down, shards, group);
    expect_close(down->weight, whole_down->weight, "down", 1e-5);
    expect_close(down->bias, whole_down->bias, "its bias", 1e-5);
  });
}

}  // namespace
}  // namespace weft::nn
