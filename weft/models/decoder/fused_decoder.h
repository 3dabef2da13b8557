#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/dist/group.h"
#include "weft/models/config.h"
#include "weft/models/decoder/decoder_block.h"
#include "weft/nn/kv_cache.h"
#include "weft/nn/norm.h"
#include "weft/nn/panel_linear.h"
#include "weft/nn/rope.h"
#include "weft/quant/panel_matrix.h"
#include "weft/shard/layout.h"

namespace weft::models {

/// A decoder's pass over a cache for inference on the CPU: what the modules compute, by a few
/// kernels per layer, without dispatch or new memory. For blocks whose linears are all in panels
/// (nn::round_activations).
class FusedDecoder {
 public:
  /// Null if a block has experts, or a linear that is not in panels, or rounds activations to other
  /// bits than the first, or a parameter that is not float32. Holds the modules' weights; not
  /// collective.
  static std::unique_ptr<FusedDecoder> make(const ModelConfig& config,
                                            const std::vector<DecoderBlock>& blocks,
                                            const nn::RMSNorm& last_norm, const dist::Group& group);
  /// Whether the modules still hold the linears that they held then.
  bool is_current() const;
  /// x_BTD: the tokens' embeddings, floating. Writes keys and values behind the cache's positions
  /// and leaves it to the caller to advance it. Returns hidden states after the last norm, float32.
  /// Throws ConfigError if the cache has no room. Collective: two all-reduces a layer.
  at::Tensor run(const at::Tensor& x_BTD, const nn::RopeAngles& angles, nn::KvCache& cache);

 private:
  using Linear = std::shared_ptr<nn::PanelLinearImpl>;
  struct Layer {
    at::Tensor input_norm, ffn_norm, q_norm, k_norm, o_bias, down_bias;
    Linear q, k, v, o, gate, up, down;
    std::vector<int64_t> kv_of_head;
    int64_t window = 0;
  };
  struct Held {
    const nn::LinearHolder* holder;
    const nn::LinearLike* inner;
  };
  /// The rows of a pass: row b * tokens + t.
  struct Pass {
    int64_t batch, tokens, start;
    const nn::RopeAngles* angles;
    nn::KvCache* cache;
    float* x;
    int64_t rows() const { return batch * tokens; }
  };
  /// Floats that the next pass uses again.
  class Rows {
   public:
    float* of(int64_t rows, int64_t stride);
    float* row(int64_t index) { return floats_.data() + index * stride_; }
    int64_t stride() const { return stride_; }

   private:
    std::vector<float> floats_;
    int64_t stride_ = 0;
  };

  explicit FusedDecoder(const ModelConfig& config, dist::Group group);
  bool add(const DecoderBlock& block);
  Linear take(const nn::LinearHolder& holder);

  void round_normed(const Pass& pass, const at::Tensor& weight);
  void project(const Linear& linear, Rows& to, std::vector<quant::PanelProduct>& products);
  void attend(const Pass& pass, int64_t index);
  void norm_heads(const Pass& pass, const Layer& layer);
  void turn_heads(const Pass& pass, const Layer& layer, int64_t index, float q_scale);
  void attend_one_token(const Pass& pass, const Layer& layer, int64_t index);
  void attend_tokens(const Pass& pass, const Layer& layer, int64_t index);
  void feed_forward(const Pass& pass, const Layer& layer);
  void add_reduced(const Pass& pass, const nn::PanelLinearImpl& linear, const at::Tensor& bias);

  int64_t width_, head_dim_;
  float norm_eps_;
  dist::Group group_;
  at::Tensor last_norm_;
  std::vector<Layer> layers_;
  std::vector<Held> held_;
  quant::RoundedRows rounded_;
  Rows normed_, q_, k_, v_, gate_, up_, scores_;
  std::vector<float> scales_;
  at::Tensor sum_;
};

}  // namespace weft::models
