#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "weft/models/decoder/attention_layer.h"
#include "weft/models/decoder/feed_forward_layer.h"
#include "weft/nn/layers/norm.h"

namespace weft::models {

/// One layer: x + scale * attention(norm(x)), then x + scale * feed_forward(norm(x)); with norms
/// after, x + scale * norm(attention(x)) and x + scale * norm(feed_forward(x)).
class DecoderBlockImpl : public torch::nn::Module {
 public:
  DecoderBlockImpl(const ModelConfig& config, const WeightSource& source, int64_t layer,
                   const dist::Group& group);
  /// x_BTD, whole, or this rank's rows of it (pass.rows). Returns the same shape. Collective.
  at::Tensor forward(const at::Tensor& x_BTD, const PassContext& pass);
  /// Of attention and of the feed-forward layer: before or after them.
  const nn::RMSNorm& attention_norm() const { return attention_norm_; }
  const AttentionLayer& attention() const { return attention_; }
  const nn::RMSNorm& ffn_norm() const { return ffn_norm_; }
  /// Empty in a layer with experts.
  const FeedForwardLayer& feed_forward() const { return mlp_; }
  /// Empty in a layer without.
  const nn::MixtureOfExperts& experts() const { return experts_; }

 private:
  at::Tensor taken(const at::Tensor& x_BTD, nn::RMSNorm& norm) const;
  at::Tensor added(const at::Tensor& y_BTD, nn::RMSNorm& norm, const PassContext& pass,
                   uint64_t half) const;

  int64_t layer_;
  bool norms_after_;
  double residual_scale_;
  nn::RMSNorm attention_norm_;
  AttentionLayer attention_;
  nn::RMSNorm ffn_norm_;
  FeedForwardLayer mlp_{nullptr};
  nn::MixtureOfExperts experts_{nullptr};
};
TORCH_MODULE(DecoderBlock);

}  // namespace weft::models
