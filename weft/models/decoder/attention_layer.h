#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>

#include "weft/models/config/config.h"
#include "weft/models/decoder/token_mixer.h"
#include "weft/models/load/weight_source.h"
#include "weft/nn/attention/attention_spec.h"
#include "weft/nn/attention/head_sinks.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::models {

/// A norm of queries or of keys: of each head by itself, or over all heads of all ranks. Both
/// empty: none.
struct QueryKeyNorm {
  nn::HeadRMSNorm each{nullptr};
  nn::ShardedRMSNorm all{nullptr};

  /// What this rank's features are multiplied by; undefined without a norm.
  at::Tensor weight() const {
    if (!all.is_empty()) return all->weight;
    return each.is_empty() ? at::Tensor() : each->whole_weight();
  }
};

/// What the layer is made of.
struct AttentionParts {
  nn::AllToShardedLinear q_proj;
  /// Empty where the layer reads another one's keys and values; v_proj also where values are what
  /// k_proj gives.
  nn::AllToShardedLinear k_proj{nullptr}, v_proj{nullptr};
  nn::ShardedToAllLinear o_proj;
  QueryKeyNorm q_norm, k_norm;
  /// With the sinks' weight.
  nn::AttentionSpec spec;
  /// Empty: there are none.
  nn::HeadSinks sinks{nullptr};
  /// Rope turns queries and keys.
  bool has_rope = true;
  /// Behind the queries of each head q_proj has as many gates of its output.
  bool has_gates = false;
  /// Values are normed head by head (nn::unit_norm), with norms' epsilon.
  bool norms_values = false;
};

/// A layer's grouped-query attention, cut by heads: one all-reduce forward and one backward.
class AttentionLayerImpl : public TokenMixerImpl {
 public:
  AttentionLayerImpl(const ModelConfig& config, const WeightSource& source, int64_t layer,
                     const dist::Group& group);
  at::Tensor forward(const at::Tensor& x_BTD, const PassContext& pass) override;
  const AttentionParts& parts() const { return parts_; }
  /// The layer whose keys and values it reads: its own number, as a rule.
  int64_t kv_layer() const { return kv_layer_; }

 private:
  at::Tensor heads(const at::Tensor& x, const PassContext& pass) const;
  at::Tensor normed_heads(QueryKeyNorm& norm, const at::Tensor& x, const PassContext& pass) const;
  at::Tensor values(const at::Tensor& x, const PassContext& pass) const;
  nn::RopeAngles angles(const PassContext& pass, int64_t tokens) const;
  using Cached = std::pair<at::Tensor, at::Tensor>;
  at::Tensor attended_to_cached(const at::Tensor& q_BTnH, const nn::RopeAngles& own,
                                const Cached& cached) const;
  at::Tensor attended_to_others(const at::Tensor& q_BTnH, const PassContext& pass);
  at::Tensor attended(const at::Tensor& q_BTnH, const at::Tensor& k_BTkH, const at::Tensor& v_BTkH,
                      const PassContext& pass);

  int64_t layer_;
  int64_t kv_layer_;
  /// Others read its own.
  bool is_read_by_others_;
  int64_t head_dim_;
  double norm_eps_;
  AttentionParts parts_;
};
TORCH_MODULE(AttentionLayer);

}  // namespace weft::models
