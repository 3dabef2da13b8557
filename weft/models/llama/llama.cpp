#include "weft/models/llama/llama.h"

#include <ATen/ops/silu.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/nn/attention.h"
#include "weft/nn/norm.h"
#include "weft/nn/parallel_linear.h"
#include "weft/nn/rope.h"
#include "weft/nn/vocab_cross_entropy.h"
#include "weft/nn/vocab_parallel.h"
#include "weft/ops/collectives.h"
#include "weft/shard/heads.h"

// Shape letters: B batch, T tokens, S positions, D width, N heads, K kv heads, H head dim, F ffn,
// V vocabulary; n, k, f, v are this rank's part.

namespace weft::models {
namespace {

nn::AllToShardedLinear all_to_sharded(const WeightReader& reader, const std::string& base,
                                      const dist::Group& group) {
  return nn::AllToShardedLinear(reader.linear(base, true), group, reader.layout(base));
}

nn::ShardedToAllLinear sharded_to_all(const WeightReader& reader, const std::string& base,
                                      const dist::Group& group) {
  return nn::ShardedToAllLinear(reader.linear(base, false), group, reader.layout(base),
                                reader.vector_or_undefined(base + ".bias"));
}

class AttentionImpl : public torch::nn::Module {
 public:
  AttentionImpl(const ModelConfig& config, const WeightReader& reader, const std::string& base,
                const dist::Group& group)
      : head_dim_(config.head_dim),
        kv_of_head_(
            shard::shard_heads(config.num_heads, config.num_kv_heads, group.size(), group.rank())
                .kv_of_head),
        q_proj_(register_module("q_proj", all_to_sharded(reader, base + "q_proj", group))),
        k_proj_(register_module("k_proj", all_to_sharded(reader, base + "k_proj", group))),
        v_proj_(register_module("v_proj", all_to_sharded(reader, base + "v_proj", group))),
        o_proj_(register_module("o_proj", sharded_to_all(reader, base + "o_proj", group))) {}

  at::Tensor forward(const at::Tensor& x_BTD, const nn::Rope& rope, nn::KvCache* cache,
                     int64_t layer) {
    const int64_t start = cache == nullptr ? 0 : cache->length();
    const at::Tensor shared_BTD = ops::mp_copy(x_BTD, q_proj_->group());
    const at::Tensor q_BTnH = rope.apply(heads(q_proj_->forward(shared_BTD)), start);
    const at::Tensor k_BTkH = rope.apply(heads(k_proj_->forward(shared_BTD)), start);
    at::Tensor k_BkSH = k_BTkH.transpose(1, 2);
    at::Tensor v_BkSH = heads(v_proj_->forward(shared_BTD)).transpose(1, 2);
    if (cache != nullptr) std::tie(k_BkSH, v_BkSH) = cache->append(layer, k_BkSH, v_BkSH);
    return o_proj_->forward(
        nn::grouped_query_attention(q_BTnH.transpose(1, 2), k_BkSH, v_BkSH, kv_of_head_));
  }

 private:
  at::Tensor heads(const at::Tensor& x) const {
    return x.view({x.size(0), x.size(1), x.size(2) / head_dim_, head_dim_});
  }

  int64_t head_dim_;
  std::vector<int64_t> kv_of_head_;
  nn::AllToShardedLinear q_proj_, k_proj_, v_proj_;
  nn::ShardedToAllLinear o_proj_;
};
TORCH_MODULE(Attention);

class MlpImpl : public torch::nn::Module {
 public:
  MlpImpl(const WeightReader& reader, const std::string& base, const dist::Group& group)
      : gate_proj_(register_module("gate_proj", all_to_sharded(reader, base + "gate_proj", group))),
        up_proj_(register_module("up_proj", all_to_sharded(reader, base + "up_proj", group))),
        down_proj_(
            register_module("down_proj", sharded_to_all(reader, base + "down_proj", group))) {}

  at::Tensor forward(const at::Tensor& x_BTD) {
    const at::Tensor shared_BTD = ops::mp_copy(x_BTD, gate_proj_->group());
    const at::Tensor gate_BTf = at::silu(gate_proj_->forward(shared_BTD));
    return down_proj_->forward(gate_BTf * up_proj_->forward(shared_BTD));
  }

 private:
  nn::AllToShardedLinear gate_proj_, up_proj_;
  nn::ShardedToAllLinear down_proj_;
};
TORCH_MODULE(Mlp);

nn::RMSNorm norm(const ModelConfig& config, const WeightReader& reader, const std::string& base) {
  return nn::RMSNorm(reader.vector(base + ".weight"), config.norm_eps);
}

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const ModelConfig& config, const WeightReader& reader, int64_t layer,
            const dist::Group& group)
      : layer_(layer) {
    const std::string base = core::join("model.layers.", layer, ".");
    input_norm_ =
        register_module("input_layernorm", norm(config, reader, base + "input_layernorm"));
    attention_ =
        register_module("self_attn", Attention(config, reader, base + "self_attn.", group));
    post_attention_norm_ = register_module("post_attention_layernorm",
                                           norm(config, reader, base + "post_attention_layernorm"));
    mlp_ = register_module("mlp", Mlp(reader, base + "mlp.", group));
  }

  at::Tensor forward(const at::Tensor& x_BTD, const nn::Rope& rope, nn::KvCache* cache) {
    const at::Tensor h_BTD =
        x_BTD + attention_->forward(input_norm_->forward(x_BTD), rope, cache, layer_);
    return h_BTD + mlp_->forward(post_attention_norm_->forward(h_BTD));
  }

 private:
  int64_t layer_;
  nn::RMSNorm input_norm_{nullptr}, post_attention_norm_{nullptr};
  Attention attention_{nullptr};
  Mlp mlp_{nullptr};
};
TORCH_MODULE(Block);

class Llama : public CausalLM {
 public:
  Llama(const ModelConfig& config, const WeightReader& reader, const dist::Group& group)
      : config_(config),
        group_(group),
        num_kv_heads_(
            shard::shard_heads(config.num_heads, config.num_kv_heads, group.size(), group.rank())
                .kv_heads.length),
        rope_(config.head_dim, config.rope_base, config.max_positions) {
    embedding_ = register_module(
        "embed_tokens", nn::VocabParallelEmbedding(reader.linear("model.embed_tokens", false),
                                                   config.vocab_size, group));
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      blocks_.push_back(
          register_module(core::join("layer_", layer), Block(config, reader, layer, group)));
    }
    norm_ = register_module("norm", norm(config, reader, "model.norm"));
    head_ = register_module(
        "lm_head",
        nn::VocabParallelHead(config.is_tied ? embedding_->inner() : reader.linear("lm_head", true),
                              config.vocab_size, group));
  }

  const ModelConfig& config() const override { return config_; }
  const dist::Group& group() const override { return group_; }

  at::Tensor forward(const at::Tensor& ids_BT, nn::KvCache* cache) override {
    at::Tensor x_BTD = embedding_->forward(ids_BT);
    for (Block& block : blocks_) x_BTD = block->forward(x_BTD, rope_, cache);
    if (cache != nullptr) cache->advance(ids_BT.size(1));
    return norm_->forward(x_BTD);
  }

  at::Tensor logits(const at::Tensor& x_BTD) override {
    return head_->gather(head_->forward(x_BTD));
  }

  at::Tensor token_losses(const at::Tensor& x_BTD, const at::Tensor& targets_BT) override {
    nn::CrossEntropyOptions options;
    options.reduction = nn::Reduction::kNone;
    return nn::vocab_parallel_cross_entropy(head_->forward(x_BTD), targets_BT, head_->vocab(),
                                            config_.vocab_size, group_, options);
  }

  nn::KvCache make_cache(int64_t batch, int64_t capacity) const override {
    return nn::KvCache({config_.num_layers, batch, num_kv_heads_, config_.head_dim, capacity});
  }

  int64_t weight_bytes() const override {
    int64_t bytes = 0;
    std::vector<const torch::nn::Module*> seen;
    for (const auto& module : modules()) {
      if (std::find(seen.begin(), seen.end(), module.get()) != seen.end()) continue;
      seen.push_back(module.get());
      for (const at::Tensor& part : module->parameters(false)) bytes += part.nbytes();
      for (const at::Tensor& part : module->buffers(false)) bytes += part.nbytes();
    }
    return bytes;
  }

 private:
  ModelConfig config_;
  dist::Group group_;
  int64_t num_kv_heads_;
  nn::Rope rope_;
  nn::VocabParallelEmbedding embedding_{nullptr};
  std::vector<Block> blocks_;
  nn::RMSNorm norm_{nullptr};
  nn::VocabParallelHead head_{nullptr};
};

}  // namespace

std::shared_ptr<CausalLM> make_llama(const ModelConfig& config, const WeightReader& reader,
                                     const dist::Group& group) {
  return std::make_shared<Llama>(config, reader, group);
}

}  // namespace weft::models
