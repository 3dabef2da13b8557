#include "weft/models/decoder/decoder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/decoder/attention_layer.h"
#include "weft/models/decoder/feed_forward_layer.h"
#include "weft/models/decoder/layer_parts.h"
#include "weft/nn/rope.h"
#include "weft/nn/vocab_cross_entropy.h"
#include "weft/nn/vocab_parallel.h"
#include "weft/shard/heads.h"

// Shape letters: B batch, T tokens, D width, V vocabulary.

namespace weft::models {
namespace {

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const ModelConfig& config, const WeightReader& reader, int64_t layer,
            const dist::Group& group)
      : input_norm_(
            register_module("input_layernorm", norm(config, reader, {Part::kInputNorm, layer}))),
        attention_(register_module("self_attn", AttentionLayer(config, reader, layer, group))),
        ffn_norm_(register_module("post_attention_layernorm",
                                  norm(config, reader, {Part::kFfnNorm, layer}))) {
    if (config.has_experts(layer)) {
      experts_ = register_module("experts", make_experts(config, reader, layer, group));
    } else {
      mlp_ = register_module("mlp", FeedForwardLayer(config, reader, layer, group));
    }
  }

  at::Tensor forward(const at::Tensor& x_BTD, const nn::RopeAngles& angles, nn::KvCache* cache) {
    const at::Tensor h_BTD =
        x_BTD + attention_->forward(input_norm_->forward(x_BTD), angles, cache);
    const at::Tensor normed_BTD = ffn_norm_->forward(h_BTD);
    return h_BTD + (mlp_.is_empty() ? experts_->forward(normed_BTD) : mlp_->forward(normed_BTD));
  }

 private:
  nn::RMSNorm input_norm_;
  AttentionLayer attention_;
  nn::RMSNorm ffn_norm_;
  FeedForwardLayer mlp_{nullptr};
  nn::MixtureOfExperts experts_{nullptr};
};
TORCH_MODULE(Block);

nn::Rope make_rope(const ModelConfig& config, const WeightReader& reader) {
  nn::RopeOptions options;
  options.dim = config.head_dim;
  options.base = config.rope_base;
  options.max_positions = config.max_positions;
  options.scaling = config.rope_scaling;
  options.divisors = reader.vector_or_undefined(kRopeDivisors);
  return nn::Rope(std::move(options));
}

class Decoder : public CausalLM {
 public:
  Decoder(const ModelConfig& config, const WeightReader& reader, const dist::Group& group)
      : config_(config),
        group_(group),
        num_kv_heads_(
            shard::shard_heads(config.num_heads, config.num_kv_heads, group.size(), group.rank())
                .kv_heads.length),
        rope_(make_rope(config, reader)) {
    embedding_ = register_module(
        "embed_tokens",
        nn::VocabParallelEmbedding(reader.linear(model_name(config, {Part::kEmbedding}), false),
                                   config.vocab_size, group));
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      blocks_.push_back(
          register_module(core::join("layer_", layer), Block(config, reader, layer, group)));
    }
    norm_ = register_module("norm", norm(config, reader, {Part::kFinalNorm}));
    const auto head = config.is_tied ? embedding_->inner()
                                     : reader.linear(model_name(config, {Part::kHead}), true);
    head_ = register_module("lm_head", nn::VocabParallelHead(head, config.vocab_size, group));
  }

  const ModelConfig& config() const override { return config_; }
  const dist::Group& group() const override { return group_; }

  at::Tensor forward(const at::Tensor& ids_BT, nn::KvCache* cache) override {
    const nn::RopeAngles angles =
        rope_.angles(cache == nullptr ? 0 : cache->length(), ids_BT.size(1));
    at::Tensor x_BTD = embedding_->forward(ids_BT);
    for (Block& block : blocks_) x_BTD = block->forward(x_BTD, angles, cache);
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

std::shared_ptr<CausalLM> make_decoder(const ModelConfig& config, const WeightReader& reader,
                                       const dist::Group& group) {
  return std::make_shared<Decoder>(config, reader, group);
}

}  // namespace weft::models
