#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <vector>

#include "weft/models/config.h"
#include "weft/models/weight_source.h"
#include "weft/nn/dropout.h"
#include "weft/nn/kv_cache.h"
#include "weft/nn/norm.h"
#include "weft/nn/parallel_linear.h"
#include "weft/nn/rope.h"

namespace weft::models {

/// What all layers of a pass share.
struct PassContext {
  /// Of the tokens' positions.
  nn::RopeAngles angles;
  /// int64; undefined where rows are not packed.
  at::Tensor documents_BT;
  /// Null: the tokens stand alone.
  nn::KvCache* cache = nullptr;
  /// Of the residual stream; layer numbers are the users'.
  nn::DropoutDraw dropout = {};
  /// Where the tokens stand.
  nn::ActivationPlace place = {};
};

/// A layer's grouped-query attention, cut by heads: one all-reduce forward and one backward.
class AttentionLayerImpl : public torch::nn::Module {
 public:
  AttentionLayerImpl(const ModelConfig& config, const WeightSource& source, int64_t layer,
                     const dist::Group& group);
  /// x_BTD, whole. Appends to the cache if there is one. Returns [B, T, D], whole. Collective.
  at::Tensor forward(const at::Tensor& x_BTD, const PassContext& pass);

 private:
  at::Tensor heads(const at::Tensor& x) const;

  int64_t layer_;
  int64_t head_dim_;
  int64_t window_;
  std::vector<int64_t> kv_of_head_;
  nn::AllToShardedLinear q_proj_, k_proj_, v_proj_;
  nn::ShardedToAllLinear o_proj_;
  nn::HeadRMSNorm q_norm_{nullptr}, k_norm_{nullptr};
};
TORCH_MODULE(AttentionLayer);

}  // namespace weft::models
