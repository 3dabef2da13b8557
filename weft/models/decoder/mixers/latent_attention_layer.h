#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "weft/dist/group.h"
#include "weft/models/config/config.h"
#include "weft/models/decoder/token_mixer.h"
#include "weft/models/load/weight_source.h"
#include "weft/nn/attention/latent_attention.h"
#include "weft/nn/attention/rope.h"
#include "weft/nn/layers/mixture_of_experts.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::models {

/// What the layer is made of; without a query latent `query` reads the layer's input.
struct LatentAttentionParts {
  /// The sizes of each head.
  nn::LatentHeads heads;
  /// What makes the queries' latent and norms it, whole on every rank; empty without one.
  nn::PartialLinear query_latent{nullptr};
  nn::RMSNorm query_norm{nullptr};
  /// This rank's heads.
  nn::AllToShardedLinear query{nullptr};
  /// What makes the latent of keys and values with the turned features beside it, whole; its norm.
  nn::PartialLinear kv_latent{nullptr};
  nn::RMSNorm kv_norm{nullptr};
  /// Keys and values of this rank's heads, of the latent.
  nn::AllToShardedLinear key_value{nullptr};
  nn::ShardedToAllLinear output{nullptr};
};

/// A layer's latent attention (LatentConfig), cut by heads: one all-reduce forward, one or two
/// backward. What makes the latents is whole on all ranks, and so are the latents, which are all
/// that a cache keeps: [B, 1, S, R + P] as keys, without values. A single token reads them as they
/// are; of several, keys and values are made of them.
class LatentAttentionLayerImpl : public TokenMixerImpl {
 public:
  LatentAttentionLayerImpl(const ModelConfig& config, const WeightSource& source, int64_t layer,
                           const dist::Group& group);
  /// x_BTD, whole. Throws ConfigError where the residual stream is cut.
  at::Tensor forward(const at::Tensor& x_BTD, const PassContext& pass) override;
  const LatentAttentionParts& parts() const { return parts_; }

 private:
  // What this rank's heads are computed of: the input of their queries, and what is kept.
  struct Shared {
    at::Tensor queries_BTd;
    at::Tensor kept_BTc;
  };
  Shared shared(const at::Tensor& x_BTD);
  at::Tensor turned_queries(const at::Tensor& queries_BTd, const nn::RopeAngles& angles) const;
  at::Tensor with_turned_keys(const at::Tensor& kept_BTc, const nn::RopeAngles& angles) const;
  at::Tensor expanded(const at::Tensor& q_BTnH, const at::Tensor& kept_BSc,
                      const at::Tensor& documents_BS) const;
  at::Tensor absorbed(const at::Tensor& q_BTnH, const at::Tensor& kept_BSc);

  int64_t layer_;
  dist::Group group_;
  LatentAttentionParts parts_;
  // Of its keys and values, where their inner linear, this one, has none of its own to share.
  std::weak_ptr<nn::LinearLike> dense_of_;
  int64_t dense_adapter_ = 0;
  at::Tensor dense_weight_;
};

}  // namespace weft::models
