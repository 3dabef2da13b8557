#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "weft/cuda/buffer.h"
#include "weft/cuda/graph.h"
#include "weft/cuda/kernels/attention.h"
#include "weft/cuda/rank_sum.h"
#include "weft/dist/group.h"
#include "weft/models/decoder/decoder_block.h"
#include "weft/models/passes/cuda/cuda_experts.h"
#include "weft/models/passes/cuda/cuda_kv_store.h"
#include "weft/models/passes/held_linears.h"
#include "weft/models/passes/pass.h"
#include "weft/nn/attention/kv_cache.h"
#include "weft/nn/attention/rope.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/linear/cuda_linear.h"

namespace weft::models {

/// A decoder's pass over a cache on this process's GPU: what the modules compute, in nine or ten
/// kernels per layer, or a few more with experts, without a copy in between. Partial sums of
/// several ranks are reduced between their GPUs by NCCL, where all ranks have it and a GPU of their
/// own; else they travel to the CPU and are all-reduced there. The pass of one token per sequence
/// is recorded the second time and then begins as one (cuda::Graph), unless its sums travel. For
/// blocks whose linears are all on the GPU (nn::on_cuda).
class CudaDecoder : public Pass {
 public:
  /// Holds the linears and copies norms and biases; not collective.
  explicit CudaDecoder(const PassParts& parts);
  /// False if a linear is elsewhere, or heads are larger than cuda::kMostHeadDim.
  bool is_complete() const override { return is_complete_; }
  bool is_current() const override { return held_.are_current(); }
  /// Any: run refuses one of the CPU in words.
  bool takes(const nn::KvCache* /*cache*/) const override { return true; }
  /// Of float32; throws ConfigError for another type, IoError where the GPU is full.
  nn::KvCache make_cache(const CacheRequest& request) const override;
  /// Returns float32 on the CPU. Throws ConfigError if the cache is not of make_cache as well.
  /// Collective: two all-reduces a layer; the first time ranks meet.
  at::Tensor run(const at::Tensor& x_BTD, const PassContext& context) override;

 private:
  using Linear = std::shared_ptr<nn::CudaLinearImpl>;
  struct Layer {
    AttentionLinears<nn::CudaLinearImpl> attention;
    /// Without any where there are experts.
    FeedForwardLinears<nn::CudaLinearImpl> ffn;
    std::optional<CudaExperts::Layer> experts;
    cuda::Buffer input_norm, ffn_norm, q_norm, k_norm;
    /// Of what attention and the feed-forward layer add; empty without.
    cuda::Buffer attention_after, ffn_after;
    cuda::Buffer q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;
    cuda::Buffer kv_of_head, sinks;
    nn::AttentionSpec spec;
    bool has_rope = true;
  };
  /// How much a pass gets of where its tokens stand: turned features of a head, in layers with a
  /// window where theirs have other angles, and whether queries have factors.
  struct AnglesForm {
    int64_t turned_dim;
    std::optional<int64_t> windowed_dim;
    bool has_factors, turns_neighbours;
    bool operator==(const AnglesForm&) const = default;
  };
  /// The rows of a pass: row b * tokens + t.
  struct Pass {
    int64_t batch, tokens;
    AnglesForm form;
    const CudaKvStore* store;
    int64_t rows() const { return batch * tokens; }
  };
  /// Where the parts of a pass's inputs begin, in numbers.
  struct InputPlaces {
    int64_t cos, sin, windowed_cos, windowed_sin, factors, start, end;
  };
  /// What a recorded pass depends on.
  struct Place {
    const float *keys, *values;
    CudaKvStore::Sizes sizes;
    AnglesForm form;
    bool operator==(const Place&) const = default;
  };
  /// What was added to the last sum: its bias and the norm after it, where there are any.
  struct Added {
    const cuda::Buffer *bias, *norm;
  };

  at::Tensor run_over(const at::Tensor& x_BTD, const LayerAngles& angles, const nn::KvCache& cache);
  InputPlaces places_of(const Pass& pass) const;
  bool add(const DecoderBlock& block);
  bool add_attention(const DecoderBlock& block, Layer& layer);
  bool add_feed_forward(const DecoderBlock& block, Layer& layer);
  const CudaKvStore& store_of(const nn::KvCache& cache, int64_t batch) const;
  void make_room(const Pass& pass);
  void upload_inputs(const Pass& pass, const at::Tensor& x_BTD, const LayerAngles& angles,
                     int64_t start);
  void meet();
  bool have_own_gpus() const;
  void run_pass(const Pass& pass);
  void run_layers(const Pass& pass);
  void attend(const Pass& pass, int64_t index);
  void put_positions(const Pass& pass, const Layer& layer, cuda::AttentionCall& call) const;
  cuda::AttentionCall attention_call(const Pass& pass, int64_t index) const;
  void feed_forward(const Pass& pass, const Layer& layer);
  void norm(const Pass& pass, const std::optional<Added>& added, const cuda::Buffer& weight);
  void reduce(const Pass& pass);

  int64_t width_, head_dim_, heads_ = 0, kv_heads_ = 0, ffn_ = 0;
  float norm_eps_, residual_scale_;
  cuda::Gating gating_;
  dist::Group group_;
  cuda::Buffer last_norm_;
  std::vector<Layer> layers_;
  CudaExperts experts_;
  HeldLinears held_;
  /// What a pass gets from the CPU in one copy: x [rows, D], which becomes the residual stream,
  /// cosines and sines [tokens, turned_dim], those of layers with a window where they are others,
  /// factors of queries [tokens] if there are any, and the positions before it as an int32.
  cuda::Buffer inputs_;
  std::vector<float> host_inputs_;
  cuda::Buffer normed_, sum_, q_, k_, v_, attended_, scratch_, gate_, up_;
  at::Tensor host_sum_;
  bool has_met_ = false;
  std::optional<cuda::RankSum> rank_sum_;
  /// Where the last pass of one token ran, and its recording once there was a second one.
  std::optional<Place> last_place_;
  std::optional<cuda::Graph> graph_;
  bool is_complete_ = false;
};

}  // namespace weft::models
