#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "weft/models/decoder/attention_layer.h"
#include "weft/models/decoder/feed_forward_layer.h"
#include "weft/nn/layers/norm.h"

namespace weft::models {

/// One layer: x + attention(norm(x)), then x + feed_forward(norm(x)).
class DecoderBlockImpl : public torch::nn::Module {
 public:
  DecoderBlockImpl(const ModelConfig& config, const WeightSource& source, int64_t layer,
                   const dist::Group& group);
  /// x_BTD, whole, or this rank's rows of it (pass.rows). Returns the same shape. Collective.
  at::Tensor forward(const at::Tensor& x_BTD, const PassContext& pass);
  const nn::RMSNorm& input_norm() const { return input_norm_; }
  const AttentionLayer& attention() const { return attention_; }
  const nn::RMSNorm& ffn_norm() const { return ffn_norm_; }
  /// Empty in a layer with experts.
  const FeedForwardLayer& feed_forward() const { return mlp_; }

 private:
  at::Tensor dropped(const at::Tensor& x_BTD, const PassContext& pass, uint64_t half) const;

  int64_t layer_;
  nn::RMSNorm input_norm_;
  AttentionLayer attention_;
  nn::RMSNorm ffn_norm_;
  FeedForwardLayer mlp_{nullptr};
  nn::MixtureOfExperts experts_{nullptr};
};
TORCH_MODULE(DecoderBlock);

}  // namespace weft::models
