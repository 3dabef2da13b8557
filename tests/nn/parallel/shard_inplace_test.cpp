#include "weft/nn/parallel/shard_inplace.h"

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/nn/linear/linear.h"
#include "weft/ops/collectives.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::seeded;
using testing::error_text;

struct Convolutions : torch::nn::Module {
  Convolutions()
      : widen(register_module("widen", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 7, 3)))),
        narrow(register_module("narrow", torch::nn::Conv2d(torch::nn::Conv2dOptions(7, 5, 3)))) {
    to(at::kDouble);
    uint64_t seed = 20;
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters()) {
      parameter.copy_(seeded(parameter.sizes(), seed++));  // biases are not zero
    }
  }
  at::Tensor forward(const at::Tensor& x, const Group& group) {
    const at::Tensor h = at::tanh(widen->forward(ops::mp_copy(x, group)));
    return ops::mp_reduce(narrow->forward(h), group);
  }
  torch::nn::Conv2d widen, narrow;
};

// Output channels of the first, input channels of the second, whose bias is added once.
ParameterRule conv_rule(const std::string& path, const at::Tensor&) {
  if (path == "narrow.weight") return ParameterRule::cut(1);
  if (path == "narrow.bias") return ParameterRule::first_rank();
  return ParameterRule::cut(0);
}

TEST(ShardInplace, CutsConvolutionsByChannelsAndAddsTheBiasOnce) {
  on_ranks([](const Group& group) {
    Convolutions whole, sharded;
    const InplaceShards shards = shard_inplace(sharded, conv_rule, group);
    const at::Tensor x = leaf(seeded({2, 3, 8, 8}, 1)), x_rank = leaf(x);
    const at::Tensor y = whole.forward(x, Group()), y_rank = sharded.forward(x_rank, group);
    const at::Tensor grad = seeded(y.sizes(), 2);
    expect_close(y_rank, y, "forward");
    y.backward(grad);
    y_rank.backward(grad);
    expect_close(x_rank.grad(), x.grad(), "gradient of the input");
    expect_close(sharded.widen->weight.grad(), test::piece(whole.widen->weight.grad(), 0, group),
                 "gradient of widen");
    expect_close(sharded.widen->bias.grad(), test::piece(whole.widen->bias.grad(), 0, group),
                 "gradient of its bias");
    expect_close(sharded.narrow->weight.grad(), test::piece(whole.narrow->weight.grad(), 1, group),
                 "gradient of narrow");
    EXPECT_EQ(sharded.narrow->bias.requires_grad(), group.rank() == 0);
    if (group.rank() == 0) {
      expect_close(sharded.narrow->bias.grad(), whole.narrow->bias.grad(), "bias counted once");
    }
    unshard_inplace(sharded, shards, group);
    for (const auto& item : whole.named_parameters()) {
      const at::Tensor back = sharded.named_parameters()[item.key()];
      EXPECT_TRUE(back.equal(item.value())) << item.key();
      EXPECT_TRUE(back.requires_grad()) << item.key();
    }
  });
}

/// A stack of experts; `choice` [T] says which expert a token goes to.
struct Experts : torch::nn::Module {
  Experts()
      : up(register_parameter("up", seeded({3, 10, 4}, 1))),
        down(register_parameter("down", seeded({3, 4, 10}, 2))) {}
  at::Tensor forward(const at::Tensor& x_TD, const at::Tensor& choice, const Group& group) {
    const at::Tensor in_TD1 = ops::mp_copy(x_TD, group).unsqueeze(-1);
    const at::Tensor h = at::silu(up.index_select(0, choice).matmul(in_TD1));
    return ops::mp_reduce(down.index_select(0, choice).matmul(h).squeeze(-1), group);
  }
  at::Tensor up, down;
};

TEST(ShardInplace, CutsAStackOfExpertsByTheirInnerWidth) {
  on_ranks([](const Group& group) {
    Experts whole, sharded;
    shard_inplace(
        sharded,
        [](const std::string& path, const at::Tensor&) {
          return ParameterRule::cut(path == "up" ? 1 : 2);
        },
        group);
    const at::Tensor x = seeded({6, 4}, 3), grad = seeded({6, 4}, 4);
    const at::Tensor choice = at::tensor({0, 2, 1, 1, 0, 2}, at::kLong);
    const at::Tensor y = whole.forward(x, choice, Group());
    const at::Tensor y_rank = sharded.forward(x, choice, group);
    expect_close(y_rank, y, "forward");
    y.backward(grad);
    y_rank.backward(grad);
    expect_close(sharded.up.grad(), test::piece(whole.up.grad(), 1, group), "up");
    expect_close(sharded.down.grad(), test::piece(whole.down.grad(), 2, group), "down");
  });
}

TEST(ShardInplace, CutsAFusedQkvInUnevenSegments) {
  on_ranks([](const Group& group) {
    torch::nn::Linear qkv(torch::nn::LinearOptions(5, 20));
    const at::Tensor whole = qkv->weight.detach().clone(), bias = qkv->bias.detach().clone();
    shard_inplace(
        *qkv,
        [](const std::string&, const at::Tensor&) {
          return ParameterRule::cut(0, {12, 4, 4});
        },
        group);
    const at::Tensor x = seeded({3, 5}, 1, at::kFloat);
    std::vector<at::Tensor> parts;
    for (const at::Tensor& part : at::linear(x, whole, bias).split_with_sizes({12, 4, 4}, -1)) {
      parts.push_back(test::piece(part, -1, group));
    }
    expect_close(qkv->forward(x), at::cat(parts, -1), "q, k and v side by side", 1e-6);
  });
}

TEST(ShardInplace, CutsTiedWeightsOnceAndLetsTheWholeGo) {
  on_ranks(
      [](const Group& group) {
        torch::nn::Linear one(torch::nn::LinearOptions(4, 6).bias(false));
        torch::nn::Linear two(torch::nn::LinearOptions(4, 6).bias(false));
        two->weight = one->weight;
        two->register_parameter("tied", one->weight);
        torch::nn::Sequential both(one, two);
        const c10::weak_intrusive_ptr<c10::StorageImpl> storage(
            one->weight.storage().getWeakStorageImpl());
        shard_inplace(
            *both, [](const std::string&, const at::Tensor&) { return ParameterRule::cut(0); },
            group);
        EXPECT_EQ(one->weight.size(0), 6 / group.size());
        EXPECT_TRUE(two->weight.is_same(one->weight));
        EXPECT_TRUE(storage.expired()) << "nothing holds the whole";
      },
      {2, 3});
}

ParameterRule by_inputs(const std::string& path, const at::Tensor&) {
  return path.ends_with("weight") ? ParameterRule::cut(-1) : ParameterRule::keep();
}

TEST(ShardInplace, RefusesOnAllRanksBeforeAnythingIsChanged) {
  on_ranks(
      [](const Group& group) {
        torch::nn::Linear linear(torch::nn::LinearOptions(6, 2));
        const at::Tensor before = linear->weight.detach().clone();
        const auto text = [&](const ShardRule& rule) {
          return error_text([&] { shard_inplace(*linear, rule, group); });
        };
        EXPECT_EQ(text(by_inputs),
                  "ConfigError: nn.shard_inplace: bias would be added once per rank: weight is cut "
                  "along dim 1 over 3 ranks and the bias is kept whole; give it first_rank() where "
                  "outputs are summed, or cut it with the outputs");
        EXPECT_EQ(text([](const auto&, const auto&) { return ParameterRule::cut(0); }),
                  "ConfigError: nn.shard_inplace: bias [2], dim 0: 2 units of 1 cannot be cut over "
                  "3 ranks; use 1 to 2 ranks");
        EXPECT_EQ(text([](const auto&, const auto&) { return ParameterRule::cut(4); }),
                  "ShapeError: nn.shard_inplace: bias [2]: dim 4, expected -1 to 0");
        EXPECT_TRUE(linear->weight.equal(before));
        Linear parallel(torch::nn::Linear(torch::nn::LinearOptions(6, 6).bias(false)));
        parallel->shard(ShardKind::kShardedToAll, group);
        torch::nn::Sequential model(parallel);
        EXPECT_EQ(error_text([&] { shard_inplace(*model, by_inputs, group); }),
                  "ConfigError: nn.shard_inplace: 0.inner.inner.weight is part of a parallel layer "
                  "and cut already; keep() it");
      },
      {3});
}

}  // namespace
}  // namespace weft::nn
