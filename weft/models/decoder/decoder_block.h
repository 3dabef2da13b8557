#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

#include "weft/models/decoder/attention_layer.h"
#include "weft/models/decoder/feed_forward_layer.h"
#include "weft/models/decoder/token_mixer.h"
#include "weft/nn/layers/norm.h"

namespace weft::models {

/// The norms around a token mixer or a feed-forward layer; empty where there is none.
struct LayerNorms {
  nn::RMSNorm before{nullptr};
  nn::RMSNorm after{nullptr};
};

/// What a layer makes of its part of layers' own inputs: norm(out(gated(gate(x), input))).
struct InputParts {
  /// Empty in models without.
  nn::PartialLinear gate{nullptr}, out{nullptr};
  nn::RMSNorm norm{nullptr};
};

/// What goes with experts beside a feed-forward layer.
struct BesideParts {
  /// After that layer; around the experts. Empty where there are none.
  nn::RMSNorm plain_after{nullptr}, experts_before{nullptr}, experts_after{nullptr};
  /// The buffer "router_factors", [D]: the router reads unit_norm(x) times these, over sqrt(D).
  at::Tensor router_factors;

  bool are_used() const { return !plain_after.is_empty(); }
  at::Tensor router_weight() const;
};

/// One layer: x + scale * after(mixer(before(x))), then the same with the feed-forward layer, each
/// with its own norms before or after it, or both. Some families multiply what comes out by a
/// factor of the layer.
class DecoderBlockImpl : public torch::nn::Module {
 public:
  DecoderBlockImpl(const ModelConfig& config, const WeightSource& source, int64_t layer,
                   const dist::Group& group);
  /// x_BTD, whole, or this rank's rows of it (pass.rows). Returns the same shape. Collective.
  at::Tensor forward(const at::Tensor& x_BTD, const PassContext& pass);
  const LayerNorms& attention_norms() const { return attention_norms_; }
  const TokenMixerImpl& mixer() const { return *mixer_; }
  TokenMixerImpl& mixer() { return *mixer_; }
  /// Empty in a layer whose token mixer is of another kind.
  const AttentionLayer& attention() const { return attention_; }
  const LayerNorms& ffn_norms() const { return ffn_norms_; }
  /// Empty in a layer with experts alone.
  const FeedForwardLayer& feed_forward() const { return mlp_; }
  /// Empty in a layer without.
  const nn::MixtureOfExperts& experts() const { return experts_; }
  const InputParts& input() const { return input_; }
  const BesideParts& beside() const { return beside_; }
  /// [1], the buffer "layer_scalar"; undefined: nothing is multiplied.
  const at::Tensor& factor() const { return factor_; }

 private:
  void add_experts_beside(const ModelConfig& config, const WeightSource& source);
  void add_input(const ModelConfig& config, const WeightSource& source);
  at::Tensor fed(const at::Tensor& h_BTD, const PassContext& pass);
  at::Tensor with_input(const at::Tensor& h_BTD, const PassContext& pass);
  at::Tensor added(const at::Tensor& y_BTD, LayerNorms& norms, const PassContext& pass,
                   uint64_t half) const;

  int64_t layer_;
  double residual_scale_;
  LayerNorms attention_norms_;
  std::shared_ptr<TokenMixerImpl> mixer_;
  AttentionLayer attention_{nullptr};
  LayerNorms ffn_norms_;
  FeedForwardLayer mlp_{nullptr};
  nn::MixtureOfExperts experts_{nullptr};
  at::Tensor factor_;
  BesideParts beside_;
  InputParts input_;
  double norm_eps_;
  nn::Gating gating_;
};
TORCH_MODULE(DecoderBlock);

}  // namespace weft::models
