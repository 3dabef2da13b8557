#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <span>
#include <vector>

#include "weft/models/config/config.h"
#include "weft/models/decoder/position_angles.h"
#include "weft/models/load/weight_source.h"
#include "weft/nn/attention/attention_spec.h"
#include "weft/nn/attention/head_sinks.h"
#include "weft/nn/attention/kv_cache.h"
#include "weft/nn/layers/dropout.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/linear/fused_linear.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::models {

/// What all layers of a pass share.
struct PassContext {
  /// Of the tokens' positions.
  LayerAngles angles;
  /// int64; undefined where rows are not packed.
  at::Tensor documents_BT;
  /// Null: the tokens are the whole text, or each sequence has its own cache.
  nn::KvCache* cache = nullptr;
  /// Of each sequence, one token of which is read; for passes that take_each.
  std::span<nn::KvCache* const> caches = {};
  /// Of the residual stream; layer numbers are the users'.
  nn::DropoutDraw dropout = {};
  /// Where the tokens stand, and those of this rank's residual stream.
  nn::ActivationPlace place = {};
  nn::ActivationPlace stream_place = {};
  /// B.
  int64_t num_sequences = 1;
  /// Of the residual stream [r, D], with sequence parallelism; empty: it is whole, [B, T, D].
  nn::RowCounts rows = {};
};

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
  nn::AllToShardedLinear q_proj, k_proj, v_proj;
  nn::ShardedToAllLinear o_proj;
  QueryKeyNorm q_norm, k_norm;
  /// With the sinks' weight.
  nn::AttentionSpec spec;
  /// Empty: there are none.
  nn::HeadSinks sinks{nullptr};
  /// Rope turns queries and keys.
  bool has_rope = true;
};

/// A layer's grouped-query attention, cut by heads: one all-reduce forward and one backward.
class AttentionLayerImpl : public torch::nn::Module {
 public:
  AttentionLayerImpl(const ModelConfig& config, const WeightSource& source, int64_t layer,
                     const dist::Group& group);
  /// x_BTD, whole, or this rank's rows of it (pass.rows). Appends to the cache if there is one.
  /// Returns the same shape. Collective.
  at::Tensor forward(const at::Tensor& x_BTD, const PassContext& pass);
  const AttentionParts& parts() const { return parts_; }

 private:
  at::Tensor heads(const at::Tensor& x, const PassContext& pass) const;
  at::Tensor normed_heads(QueryKeyNorm& norm, const at::Tensor& x, const PassContext& pass) const;

  int64_t layer_;
  int64_t head_dim_;
  AttentionParts parts_;
};
TORCH_MODULE(AttentionLayer);

}  // namespace weft::models
