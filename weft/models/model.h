#pragma once

#include <torch/nn/module.h>

#include <cstdint>

#include "weft/dist/group.h"
#include "weft/models/config.h"
#include "weft/nn/kv_cache.h"

namespace weft::models {

/// A decoder-only transformer cut over a group of ranks. Every rank calls every method together.
class CausalLM : public torch::nn::Module {
 public:
  virtual const ModelConfig& config() const = 0;
  virtual const dist::Group& group() const = 0;

  /// ids_BT: int64, equal on all ranks. The tokens stand behind those in `cache`, which takes them
  /// up; a null cache means that they stand alone. Returns hidden states x_BTD after the last norm.
  virtual at::Tensor forward(const at::Tensor& ids_BT, nn::KvCache* cache) = 0;
  /// x_BTD: hidden states. Returns logits_BTV, whole, on every rank.
  virtual at::Tensor logits(const at::Tensor& x_BTD) = 0;
  /// What the tokens behind x_BTD, hidden states, cost: -ln p of targets_BT (int64, equal on all
  /// ranks), float32 [B, T] on every rank. No rank makes logits outside of its vocabulary's part.
  virtual at::Tensor token_losses(const at::Tensor& x_BTD, const at::Tensor& targets_BT) = 0;

  /// A cache for `capacity` positions of `batch` sequences, with this rank's kv heads.
  virtual nn::KvCache make_cache(int64_t batch, int64_t capacity) const = 0;
  /// Bytes of this rank's weights as they are held.
  virtual int64_t weight_bytes() const = 0;
};

}  // namespace weft::models
