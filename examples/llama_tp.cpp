// A transformer block of one's own, cut over the ranks that run it, and trained:
//   build/weft launch -n 2 -- build/examples/llama_tp
// Each rank also trains the whole block and compares. Any number of ranks from 1 to 9 works.

#include <ATen/ATen.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "weft/core/error.h"
#include "weft/dist/world.h"
#include "weft/nn/attention/attention.h"
#include "weft/nn/attention/rope.h"
#include "weft/nn/linear/linear.h"
#include "weft/ops/collectives.h"
#include "weft/shard/heads.h"

using weft::dist::Group;
using weft::nn::Linear;
using weft::nn::ShardKind;

namespace {

// B batch, T tokens, D width, N heads, K kv heads, H head dim, F ffn width; n, k, f: a rank's part.
constexpr int64_t kB = 2, kT = 12, kN = 9, kK = 3, kH = 8, kD = kN * kH, kF = 100;
constexpr int kSteps = 20;

torch::nn::Linear plain(int64_t in, int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl()
      : wq_(register_module("wq", Linear(plain(kD, kN * kH)))),
        wk_(register_module("wk", Linear(plain(kD, kK * kH)))),
        wv_(register_module("wv", Linear(plain(kD, kK * kH)))),
        wo_(register_module("wo", Linear(plain(kN * kH, kD)))) {}

  // 9 heads over 2 ranks are 6 and 3; their kv heads follow, and are replicated beyond 3 ranks.
  void shard(const Group& group) {
    const auto heads = weft::shard::head_layouts(kN, kK, kH, group.size());
    wq_->shard(ShardKind::kAllToSharded, group, heads.query);
    wk_->shard(ShardKind::kAllToSharded, group, heads.kv);
    wv_->shard(ShardKind::kAllToSharded, group, heads.kv);
    wo_->shard(ShardKind::kShardedToAll, group, heads.query);
    kv_of_head_ = weft::shard::shard_heads(kN, kK, group.size(), group.rank()).kv_of_head;
  }

  at::Tensor forward(const at::Tensor& x_BTD) {
    const at::Tensor q_BnTH = rope_.apply(heads(wq_->forward(x_BTD)), 0).transpose(1, 2);
    const at::Tensor k_BkTH = rope_.apply(heads(wk_->forward(x_BTD)), 0).transpose(1, 2);
    const at::Tensor v_BkTH = heads(wv_->forward(x_BTD)).transpose(1, 2);
    return wo_->forward(weft::nn::grouped_query_attention(q_BnTH, k_BkTH, v_BkTH, {kv_of_head_}));
  }

 private:
  // The number of heads follows from the features that there are.
  static at::Tensor heads(const at::Tensor& x) { return x.unflatten(-1, {-1, kH}); }

  Linear wq_, wk_, wv_, wo_;
  weft::nn::Rope rope_{kH, 10000, kT};
  std::vector<int64_t> kv_of_head_ = weft::shard::shard_heads(kN, kK, 1, 0).kv_of_head;
};
TORCH_MODULE(Attention);

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl()
      : attention_norm_(register_module("attention_norm", layer_norm())),
        ffn_norm_(register_module("ffn_norm", layer_norm())),
        attention_(register_module("attention", Attention())),
        w1_(register_module("w1", Linear(plain(kD, kF)))),
        w2_(register_module("w2", Linear(plain(kF, kD)))),
        w3_(register_module("w3", Linear(plain(kD, kF)))) {}

  void shard(const Group& group) {
    group_ = group;
    attention_->shard(group);
    w1_->shard(ShardKind::kAllToSharded, group);
    w3_->shard(ShardKind::kAllToSharded, group);
    w2_->shard(ShardKind::kShardedToAll, group);
  }

  // Layers that share an input share its backward all-reduce: 2 forward and 2 backward in all.
  at::Tensor forward(const at::Tensor& x_BTD) {
    const at::Tensor a_BTD = weft::ops::mp_copy(attention_norm_->forward(x_BTD), group_);
    const at::Tensor h_BTD = x_BTD + attention_->forward(a_BTD);
    const at::Tensor f_BTD = weft::ops::mp_copy(ffn_norm_->forward(h_BTD), group_);
    return h_BTD + w2_->forward(at::silu(w1_->forward(f_BTD)) * w3_->forward(f_BTD));
  }

 private:
  static torch::nn::LayerNorm layer_norm() {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({kD}));
  }

  Group group_;
  torch::nn::LayerNorm attention_norm_, ffn_norm_;
  Attention attention_;
  Linear w1_, w2_, w3_;
};
TORCH_MODULE(Block);

double train_step(Block& block, torch::optim::Optimizer& optimizer, const at::Tensor& x_BTD) {
  optimizer.zero_grad();
  const at::Tensor loss = (block->forward(x_BTD) - x_BTD.roll(1, 1)).square().mean();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

}  // namespace

int main() try {
  const auto world = weft::dist::World::from_env();
  // The same seed on every rank: the wholes are equal before they are cut.
  at::manual_seed(1);
  Block whole;
  at::manual_seed(1);
  Block sharded;
  sharded->shard(world.group());
  torch::optim::AdamW whole_optimizer(whole->parameters(), torch::optim::AdamWOptions(1e-2));
  torch::optim::AdamW optimizer(sharded->parameters(), torch::optim::AdamWOptions(1e-2));
  double worst = 0;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor x_BTD = at::randn({kB, kT, kD});
    const double expected = train_step(whole, whole_optimizer, x_BTD);
    const double loss = train_step(sharded, optimizer, x_BTD);
    worst = std::max(worst, std::abs(loss - expected) / expected);
    if (world.rank() == 0) std::printf("step %2d  loss %.6f  whole %.6f\n", step, loss, expected);
  }
  if (world.rank() == 0) std::printf("%d ranks: largest difference %.1e\n", world.size(), worst);
  return worst < 1e-4 ? 0 : 1;
} catch (const weft::core::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
