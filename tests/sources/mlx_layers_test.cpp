// The snippets of MLX's page on tensor parallelism and of its distributed layers, as a user of weft
// writes them: tests/sources/README.md has the table of lines.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/ops/tensor_checks.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist.h"
#include "weft/nn.h"
#include "weft/ops.h"

namespace nn = weft::nn;
namespace dist = weft::dist;
using weft::test::expect_close;

namespace {

constexpr double kTolerance = 1e-5;

// x = ...; l1 = nn.AllToShardedLinear(2, 2, bias=False); l2 = nn.ShardedToAllLinear(2, 2,
// bias=False)
TEST(MlxPage, TheTinyModel) {
  for (const int n : {1, 2}) {
    weft::test::run_ranks(n, [](const dist::World& world) {
      at::Tensor x = at::rand({4, 2});
      world.group().broadcast(x, 0);
      nn::AllToShardedLinear l1(2, 2, /*bias=*/false);
      const at::Tensor l1_out = l1(x);
      EXPECT_EQ(l1_out.sizes(), (std::vector<int64_t>{4, 2 / world.size()}));
      EXPECT_EQ(l1->weight().sizes(), (std::vector<int64_t>{2 / world.size(), 2}));
      nn::ShardedToAllLinear l2(2, 2, /*bias=*/false);
      const at::Tensor l2_out = l2(l1_out);
      EXPECT_EQ(l2_out.sizes(), (std::vector<int64_t>{4, 2}));
      const at::Tensor whole = at::linear(at::linear(x, l1->master_weight()), l2->master_weight());
      expect_close(l2_out.detach(), whole, "both layers", kTolerance);
    });
  }
}

TEST(MlxLayers, NewLayersAreOneWholeOnAnyNumberOfRanks) {
  for (const int n : {1, 2, 3, 4}) {
    weft::test::run_ranks(n, [](const dist::World& world) {
      at::manual_seed(4);
      nn::Linear whole(10, 7);
      at::manual_seed(5);
      nn::AllToShardedLinear up(10, 7, true, dist::Group());
      at::manual_seed(5);
      nn::AllToShardedLinear up_cut(10, 7);
      EXPECT_TRUE(at::equal(up_cut->master_weight(), up->master_weight()));
      EXPECT_TRUE(at::equal(up_cut->master_bias(), up->master_bias()));
      at::manual_seed(6);
      nn::ShardedToAllLinear down(7, 10, true, dist::Group());
      at::manual_seed(6);
      nn::ShardedToAllLinear down_cut(7, 10);
      EXPECT_TRUE(at::equal(down_cut->master_weight(), down->master_weight()));
      EXPECT_TRUE(at::equal(down_cut->bias, down->bias));
      const at::Tensor x = at::ones({3, 10});
      expect_close(down_cut(at::tanh(up_cut(x))).detach(), down(at::tanh(up(x))).detach(), "chain",
                   kTolerance);
      EXPECT_EQ(whole->weight().sizes(), (std::vector<int64_t>{7, 10}));
      EXPECT_EQ(world.size(), up_cut->group().size());
    });
  }
}

TEST(MlxLayers, NewQuantizedSiblingsAreOneWholeOnAnyNumberOfRanks) {
  for (const int n : {1, 2, 3, 4}) {
    weft::test::run_ranks(n, [](const dist::World&) {
      for (const auto& [in, group_size, bits] :
           {std::tuple{256, 64, 4}, {192, 32, 8}, {64, 64, 2}, {128, 128, 3}}) {
        at::manual_seed(7);
        nn::QuantizedAllToShardedLinear up(96, in, true, 32, bits, dist::Group());
        at::manual_seed(7);
        nn::QuantizedAllToShardedLinear up_cut(96, in, true, 32, bits);
        at::manual_seed(8);
        nn::QuantizedShardedToAllLinear down(in, 96, true, group_size, bits, dist::Group());
        at::manual_seed(8);
        nn::QuantizedShardedToAllLinear down_cut(in, 96, true, group_size, bits);
        EXPECT_TRUE(at::equal(up_cut->master_weight(), up->master_weight()));
        EXPECT_TRUE(at::equal(down_cut->master_weight(), down->master_weight()));
        EXPECT_TRUE(at::equal(down_cut->master_bias(), down->master_bias()));
      }
      nn::QuantizedAllToShardedLinear by_default(128, 12);
      EXPECT_EQ(by_default->weight().size(1), 128 * 4 / 8);
    });
  }
}

// The attention and feed-forward classes of the Llama example, with the page's shard methods.
struct AttentionImpl : torch::nn::Module {
  AttentionImpl(int64_t dims, int64_t heads, int64_t kv_heads)
      : n_heads(heads), n_kv_heads(kv_heads), head_dim(dims / heads) {
    wq = register_module("wq", nn::Linear(dims, heads * head_dim, false));
    wk = register_module("wk", nn::Linear(dims, kv_heads * head_dim, false));
    wv = register_module("wv", nn::Linear(dims, kv_heads * head_dim, false));
    wo = register_module("wo", nn::Linear(heads * head_dim, dims, false));
  }

  void shard(const dist::Group& group) {
    n_heads = n_heads / group.size();
    n_kv_heads = n_kv_heads / group.size();
    wq = nn::shard_linear(wq, "all-to-sharded", group);
    wk = nn::shard_linear(wk, "all-to-sharded", group);
    wv = nn::shard_linear(wv, "all-to-sharded", group);
    wo = nn::shard_linear(wo, "sharded-to-all", group);
  }

  at::Tensor forward(const at::Tensor& x) {
    const auto heads = [&](const at::Tensor& y, int64_t n) {
      return y.unflatten(-1, {n, head_dim}).transpose(1, 2);
    };
    const at::Tensor q = heads(wq(x), n_heads);
    const at::Tensor k = heads(wk(x), n_kv_heads).repeat_interleave(n_heads / n_kv_heads, 1);
    const at::Tensor v = heads(wv(x), n_kv_heads).repeat_interleave(n_heads / n_kv_heads, 1);
    const at::Tensor y = at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true);
    return wo(y.transpose(1, 2).flatten(2));
  }

  int64_t n_heads, n_kv_heads, head_dim;
  nn::Linear wq{nullptr}, wk{nullptr}, wv{nullptr}, wo{nullptr};
};
TORCH_MODULE(Attention);

struct FeedForwardImpl : torch::nn::Module {
  FeedForwardImpl(int64_t dims, int64_t hidden) {
    w1 = register_module("w1", nn::Linear(dims, hidden, false));
    w2 = register_module("w2", nn::Linear(hidden, dims, false));
    w3 = register_module("w3", nn::Linear(dims, hidden, false));
  }

  void shard(const dist::Group& group) {
    w1 = nn::shard_linear(w1, "all-to-sharded", group);
    w2 = nn::shard_linear(w2, "sharded-to-all", group);
    w3 = nn::shard_linear(w3, "all-to-sharded", group);
  }

  at::Tensor forward(const at::Tensor& x) { return w2(at::silu(w1(x)) * w3(x)); }

  nn::Linear w1{nullptr}, w2{nullptr}, w3{nullptr};
};
TORCH_MODULE(FeedForward);

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : attention(register_module("attention", Attention(32, 8, 4))),
        feed_forward(register_module("feed_forward", FeedForward(32, 44))) {}
  at::Tensor forward(at::Tensor x) {
    x = x + attention(x);
    return x + feed_forward(x);
  }
  Attention attention;
  FeedForward feed_forward;
};
TORCH_MODULE(Block);

Block new_block() {
  at::manual_seed(9);
  return Block();
}

TEST(MlxPage, TheLlamaBlockIsCutByItsShardMethods) {
  for (const int n : {1, 2, 4}) {
    weft::test::run_ranks(n, [](const dist::World& world) {
      Block whole = new_block(), cut = new_block();
      if (world.size() > 1) {
        cut->attention->shard(world);
        cut->feed_forward->shard(world);
      }
      at::manual_seed(10);
      const at::Tensor x = at::randn({2, 6, 32});
      const at::Tensor y = whole(x), y_cut = cut(x);
      expect_close(y_cut.detach(), y.detach(), "block", kTolerance);
      y.square().sum().backward();
      y_cut.square().sum().backward();
      const int64_t rows = 32 / world.size();
      expect_close(cut->attention->wq->weight().grad(),
                   whole->attention->wq->weight().grad().narrow(0, world.rank() * rows, rows),
                   "gradient of wq", kTolerance);
      EXPECT_EQ(cut->parameters().size(), whole->parameters().size()) << "all stay registered";
    });
  }
}

// Layers of libtorch's own, and shard_inplace by name with mp_copy and mp_reduce around it.
TEST(MlxLayers, TorchsLayersAreCutTheSameWay) {
  for (const int n : {2, 3}) {
    weft::test::run_ranks(n, [](const dist::World& world) {
      const auto new_layers = [] {
        at::manual_seed(11);
        return std::pair{torch::nn::Linear(6, 9), torch::nn::Linear(9, 6)};
      };
      auto [up, down] = new_layers();
      const at::Tensor x = at::randn({4, 6});
      const at::Tensor whole = down(at::relu(up(x))).detach();
      nn::Linear up_cut = nn::shard_linear(up, "all-to-sharded", world);
      nn::Linear down_cut = nn::shard_linear(down, "sharded-to-all", world);
      expect_close(down_cut(at::relu(up_cut(x))).detach(), whole, "shard_linear", kTolerance);
      std::tie(up, down) = new_layers();
      nn::shard_inplace(*up, "all-to-sharded", world);
      nn::shard_inplace(*down, "sharded-to-all", world);
      const at::Tensor h = at::relu(up(weft::ops::mp_copy(x)));
      expect_close(weft::ops::mp_reduce(down(h)).detach(), whole, "shard_inplace", kTolerance);
    });
  }
}

TEST(MlxLayers, WhatCannotBeIsRefused) {
  weft::test::run_ranks(2, [](const dist::World& world) {
    const auto refusal = [](auto&& run) -> std::string {
      try {
        run();
      } catch (const weft::core::ConfigError& error) {
        return error.what();
      }
      return "nothing was thrown";
    };
    nn::Linear layer(4, 4);
    EXPECT_EQ(refusal([&] { layer = nn::shard_linear(layer, "column", world); }),
              "nn.shard_linear: sharding 'column', expected all-to-sharded or sharded-to-all");
    layer = nn::shard_linear(layer, "all-to-sharded", world);
    EXPECT_EQ(refusal([&] { layer = nn::shard_linear(layer, "all-to-sharded", world); }),
              "nn.Linear.shard: [4, 4] is cut already over group world of 2 ranks; unshard it "
              "first");
  });
}

}  // namespace
