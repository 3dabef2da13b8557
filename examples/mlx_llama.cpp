// A Llama cut by the `shard` methods of MLX's page about tensor parallelism:
//   build/weft launch -n 2 -- build/examples/mlx_llama
// It generates as the whole model does. As there, the number of ranks divides the heads;
// llama_tp.cpp takes any number.
#include <cstdio>
#include <vector>

#include "weft/core/error.h"
#include "weft/dist.h"
#include "weft/nn.h"

namespace nn = weft::nn;
using weft::dist::Group;

// B batch, T tokens, D width, N heads, K kv heads, H head dim, F ffn width, V vocabulary.
constexpr int64_t kD = 64, kN = 8, kK = 4, kH = kD / kN, kF = 172, kV = 97, kLayers = 3;
constexpr int64_t kMaxTokens = 64;

struct AttentionImpl : torch::nn::Module {
  AttentionImpl() {
    wq = register_module("wq", nn::Linear(kD, kN * kH, false));
    wk = register_module("wk", nn::Linear(kD, kK * kH, false));
    wv = register_module("wv", nn::Linear(kD, kK * kH, false));
    wo = register_module("wo", nn::Linear(kN * kH, kD, false));
  }

  void shard(const Group& group) {
    n_heads = n_heads / group.size();
    n_kv_heads = n_kv_heads / group.size();
    wq = nn::shard_linear(wq, "all-to-sharded", group);
    wk = nn::shard_linear(wk, "all-to-sharded", group);
    wv = nn::shard_linear(wv, "all-to-sharded", group);
    wo = nn::shard_linear(wo, "sharded-to-all", group);
  }

  at::Tensor forward(const at::Tensor& x_BTD) {
    const at::Tensor q_BTnH = rope.apply(wq(x_BTD).unflatten(-1, {n_heads, kH}), 0);
    const at::Tensor k_BTkH = rope.apply(wk(x_BTD).unflatten(-1, {n_kv_heads, kH}), 0);
    const at::Tensor v_BTkH = wv(x_BTD).unflatten(-1, {n_kv_heads, kH});
    std::vector<int64_t> kv_of_head;
    for (int64_t head = 0; head < n_heads; ++head) {
      kv_of_head.push_back(head * n_kv_heads / n_heads);
    }
    return wo(nn::grouped_query_attention(q_BTnH.transpose(1, 2), k_BTkH.transpose(1, 2),
                                          v_BTkH.transpose(1, 2), {kv_of_head}));
  }

  int64_t n_heads = kN, n_kv_heads = kK;
  nn::Linear wq{nullptr}, wk{nullptr}, wv{nullptr}, wo{nullptr};
  nn::Rope rope{kH, 10000, kMaxTokens};
};
TORCH_MODULE(Attention);

struct FeedForwardImpl : torch::nn::Module {
  FeedForwardImpl() {
    w1 = register_module("w1", nn::Linear(kD, kF, false));
    w2 = register_module("w2", nn::Linear(kF, kD, false));
    w3 = register_module("w3", nn::Linear(kD, kF, false));
  }

  void shard(const Group& group) {
    w1 = nn::shard_linear(w1, "all-to-sharded", group);
    w2 = nn::shard_linear(w2, "sharded-to-all", group);
    w3 = nn::shard_linear(w3, "all-to-sharded", group);
  }

  at::Tensor forward(const at::Tensor& x_BTD) { return w2(at::silu(w1(x_BTD)) * w3(x_BTD)); }

  nn::Linear w1{nullptr}, w2{nullptr}, w3{nullptr};
};
TORCH_MODULE(FeedForward);

struct TransformerBlockImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x_BTD) {
    const at::Tensor h_BTD = x_BTD + attention(attention_norm(x_BTD));
    return h_BTD + feed_forward(ffn_norm(h_BTD));
  }

  Attention attention = register_module("attention", Attention());
  FeedForward feed_forward = register_module("feed_forward", FeedForward());
  nn::RMSNorm attention_norm = register_module("attention_norm", nn::RMSNorm(at::ones({kD}), 1e-5));
  nn::RMSNorm ffn_norm = register_module("ffn_norm", nn::RMSNorm(at::ones({kD}), 1e-5));
};
TORCH_MODULE(TransformerBlock);

struct LlamaImpl : torch::nn::Module {
  LlamaImpl() {
    for (int64_t i = 0; i < kLayers; ++i) {
      layers.push_back(register_module("layer_" + std::to_string(i), TransformerBlock()));
    }
  }

  at::Tensor forward(const at::Tensor& ids_BT) {
    at::Tensor x_BTD = at::embedding(tok_embeddings, ids_BT);
    for (TransformerBlock& layer : layers) x_BTD = layer(x_BTD);
    return output(norm(x_BTD));
  }

  at::Tensor tok_embeddings = register_parameter("tok_embeddings", at::randn({kV, kD}));
  std::vector<TransformerBlock> layers;
  nn::RMSNorm norm = register_module("norm", nn::RMSNorm(at::ones({kD}), 1e-5));
  nn::Linear output = register_module("output", nn::Linear(kD, kV, false));
};
TORCH_MODULE(Llama);

// One seed on every rank: the wholes are equal before they are cut.
Llama load_model() {
  at::manual_seed(1);
  return Llama();
}

at::Tensor generate(Llama& model, at::Tensor ids_BT) {
  const at::NoGradGuard no_grad;
  while (ids_BT.size(1) < kMaxTokens) {
    const at::Tensor logits_BV = model(ids_BT).select(1, -1);
    ids_BT = at::cat({ids_BT, logits_BV.argmax(-1, true)}, 1);
  }
  return ids_BT;
}

int main() try {
  const weft::dist::World world = weft::dist::init();
  weft::core::check<weft::core::ConfigError>(
      kK % world.size() == 0, "mlx_llama: ", world.size(),
      " ranks, expected a divisor of the 4 kv heads; llama_tp takes others");
  Llama model = load_model();
  if (world.size() > 1) {
    // convert Linear layers in Transformer/FFN to appropriate Sharded Layers
    for (TransformerBlock& layer : model->layers) {
      layer->attention->shard(world);
      layer->feed_forward->shard(world);
    }
  }
  Llama whole = load_model();
  const at::Tensor prompt_BT = at::tensor({3, 14, 15, 92, 65}, at::kLong).view({1, 5});
  const at::Tensor ids_BT = generate(model, prompt_BT);
  const at::NoGradGuard no_grad;
  const double worst = (model(ids_BT) - whole(ids_BT)).abs().max().item<double>();
  const bool is_same = ids_BT.equal(generate(whole, prompt_BT));
  if (world.rank() == 0) {
    std::printf("%d ranks: %s tokens, largest difference of logits %.1e\n", world.size(),
                is_same ? "the whole's" : "OTHER", worst);
  }
  return is_same && worst < 1e-4 ? 0 : 1;
} catch (const weft::core::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
