#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "weft/dist/group.h"
#include "weft/dist/ordered_sum.h"
#include "weft/models/decoder/decoder_block.h"
#include "weft/models/passes/experts/fused_experts.h"
#include "weft/models/passes/float_rows.h"
#include "weft/models/passes/fused_attention.h"
#include "weft/models/passes/held_linears.h"
#include "weft/models/passes/low_rank_rows.h"
#include "weft/models/passes/mixers/fused_delta.h"
#include "weft/models/passes/mixers/fused_latent.h"
#include "weft/models/passes/pass.h"
#include "weft/models/passes/pass_caches.h"
#include "weft/models/passes/row_cut.h"
#include "weft/nn/attention/kv_cache.h"
#include "weft/nn/attention/rope.h"
#include "weft/nn/kernels/select.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/quant/panels/panel_matrix.h"
#include "weft/shard/layout.h"

namespace weft::models {

/// A decoder's pass over a cache for inference on the CPU: what the modules compute, by a few
/// kernels per layer, without dispatch or new memory. For blocks whose linears are all in panels
/// (nn::put_in_panels), also with adapters beside those of attention and dense feed-forward layers.
/// Token mixers of other kinds than attention, latent attention and gated delta nets run as modules
/// between these kernels.
class FusedDecoder : public PassByBlocks {
 public:
  /// Holds the modules' weights; not collective.
  explicit FusedDecoder(const PassParts& parts);
  /// False if a linear is not in panels, or rounds activations to other bits than the first, and
  /// with adapters where sums have one order for any number of ranks.
  bool is_complete() const override { return is_complete_; }
  bool is_current() const override { return held_.are_current(); }
  /// A cache of tensors that FusedAttention reads, without gradients.
  bool takes(const nn::KvCache* cache) const override;
  bool takes_each() const override { return true; }
  /// 1 with token mixers that are modules.
  int64_t most_as_alone() const override;
  /// Of float16 unless another type is asked for; with the states of layers that have one.
  nn::KvCache make_cache(const CacheRequest& request) const override;
  /// Returns float32. Collective: two all-reduces a layer (three where it has experts beside a
  /// feed-forward layer), or their halves around the norms of long prompts.
  at::Tensor run(const at::Tensor& x_BTD, const PassContext& context) override;

  PassRows begin(const at::Tensor& x_BTD, const PassContext& context) override;
  void run_blocks(PassRows& rows, const PassContext& context, const shard::Range& blocks) override;
  at::Tensor finish(PassRows& rows) override;

 private:
  using Linear = std::shared_ptr<nn::PanelLinearImpl>;
  using AttentionPanels = AttentionLinears<nn::PanelLinearImpl>;
  using FeedForwardPanels = FeedForwardLinears<nn::PanelLinearImpl>;
  /// A norm's weight or a bias; null: none.
  struct Vector {
    const float* data = nullptr;
    int64_t size = 0;
  };
  /// Of norms before and after a layer.
  struct Norms {
    Vector before, after;
  };
  /// Beside a layer's linears; null: none.
  struct Adapters {
    const nn::AdaptedLinearImpl *q = nullptr, *k = nullptr, *v = nullptr, *o = nullptr;
    const nn::AdaptedLinearImpl *gate = nullptr, *up = nullptr, *down = nullptr;
  };
  /// A product of what was taken with a linear, and what stands beside it.
  struct Product {
    const char* part;
    const quant::PanelView& w;
    const nn::AdaptedLinearImpl* adapters;
  };
  /// Where a head of this rank begins in a row, and which of the whole's it is.
  struct CountedHead {
    int64_t start = 0, place = 0;
  };
  /// What a pass reads of a block, side by side: weights have pushed it out of the caches when the
  /// next token comes.
  struct Layer {
    /// Null where the tokens are mixed here, by attention, a gated delta net or latent attention.
    TokenMixerImpl* mixer = nullptr;
    std::optional<FusedDelta::Layer> delta;
    std::optional<FusedLatent::Layer> latent;
    quant::PanelView q, k, v, o, gate, up, down;
    Adapters adapters;
    Norms attention_norms, ffn_norms;
    /// Of the products with o and down, their sums over the ranks in one order; null: as is
    /// fastest.
    dist::OrderedSum *o_sum = nullptr, *down_sum = nullptr;
    Vector q_norm, k_norm;
    Vector q_bias, k_bias, v_bias, o_bias, gate_bias, up_bias, down_bias;
    /// How many of q, k and v there are: without v values are what k gives, without k keys and
    /// values are those of another layer.
    size_t num_projections = 3;
    /// That one, or its own number.
    int64_t kv_layer = 0;
    /// Of ones, where values are normed.
    Vector v_norm;
    int64_t heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;
    /// Of norms over all heads of all ranks: see nn::ShardedRMSNorm.
    std::vector<shard::Range> q_counted, k_counted;
    /// The same by heads where sums are ordered: each of this rank's that counts here, and its
    /// place among the heads of queries and keys of all ranks.
    std::vector<CountedHead> q_heads, k_heads;
    nn::AttentionSpec attention;
    bool has_rope = true;
    /// Behind the queries of each head q gives as many gates of its output.
    bool has_gates = false;
    /// One of attentions_.
    FusedAttention* kernel = nullptr;
    /// What its rows of the residual stream are multiplied by in the end.
    float factor = 1;
    /// Of layers' own inputs: what gates them and projects them back, and the norm behind it; null
    /// in models without.
    quant::PanelView input_gate, input_out;
    Vector input_norm;
    /// Instead of gate, up and down, or beside them.
    std::optional<FusedExperts::Layer> experts;
    /// Of the latter: norms after the feed-forward layer, around the experts, and of what the
    /// router reads.
    Vector plain_after, experts_before, experts_after, router_norm;
  };
  /// The rows of a pass: row b * tokens + t.
  struct Pass : PassCaches {
    const PassContext* context;
    /// Contiguous, of float32; x is where its numbers lie.
    at::Tensor* x_BTD;
    float* x;
    /// The rows of x that are kept up to date here.
    RowCut own;
    /// Layers' own inputs, float32 [B, T, layers, P]; undefined: there are none.
    at::Tensor layer_inputs_BTLP = {};
    const LayerAngles& angles() const { return context->angles; }
  };
  /// Writes this rank's part of what a layer adds to its rows, [rows, D].
  using Summand = c10::function_ref<void(float* sum)>;

  static const nn::kernels::ElementKernel& elements() {
    return nn::kernels::active_kernel().float32;
  }

  bool add(const DecoderBlock& block);
  bool keep_linears(std::span<const Linear> linears);
  void add_wants(std::span<const Linear> linears);
  Linear panels_of(const std::shared_ptr<nn::LinearLike>& linear,
                   const nn::AdaptedLinearImpl*& adapters);
  bool add_attention(const DecoderBlock& block, Layer& layer);
  bool add_mixer(const DecoderBlock& block, Layer& layer);
  bool add_delta(GatedDeltaLayerImpl& mixer, Layer& layer);
  bool add_latent(LatentAttentionLayerImpl& mixer, Layer& layer);
  void take_head_norms(const AttentionParts& parts, Layer& layer);
  std::vector<CountedHead> counted_heads(const nn::ShardedRMSNorm& norm, int64_t head_dim,
                                         int64_t first) const;
  bool add_feed_forward(const DecoderBlock& block, Layer& layer);
  bool add_experts(const DecoderBlock& block, Layer& layer);
  bool add_input(const InputParts& input, Layer& layer);
  Vector keep(const at::Tensor& parameter);
  Norms keep(const LayerNorms& norms);
  void norm_in_place(const Vector& norm, float* x, int64_t rows) const;
  static void add_bias(const Vector& bias, float* row);

  void make_sums(const RowCut& own);
  void run_layer(const Pass& pass, int64_t index);
  void take_normed(const Pass& pass, const Vector& weight, quant::PanelInputs& inputs);
  void take(const Pass& pass, int64_t in, quant::PanelInputs::RowSource row_of);
  quant::PanelProduct product(const quant::PanelView& w, FloatRows& to) const;
  void multiply(const char* part, std::span<const quant::PanelProduct> products) const;
  void attend(const Pass& pass, int64_t index);
  void mix(const Pass& pass, const Layer& layer);
  at::Tensor normed_stream(const Pass& pass, const Vector& weight) const;
  void run_delta(const Pass& pass, const Layer& layer, int64_t index);
  void run_latent(const Pass& pass, const Layer& layer, int64_t index);
  void take_gates(const Layer& layer, int64_t row);
  void norm_heads(const Pass& pass, const Layer& layer);
  void scale(const Pass& pass, const Layer& layer) const;
  void add_input(const Pass& pass, size_t index);
  void feed_beside(const Pass& pass, const Layer& layer);
  float* sum_of_ranks(const Pass& pass);
  void norm_over_ranks(const Pass& pass, const Layer& layer);
  void norm_over_ranks_in_order(const Pass& pass, const Layer& layer);
  void scale_heads(const Pass& pass, const Layer& layer, const float* squares);
  float* room_for_squares(int64_t rows, int64_t each);
  void feed_forward(const Pass& pass, const Layer& layer);
  void take_gated(const Pass& pass, const Layer& layer);
  void run_experts(const Pass& pass, const Layer& layer);
  void add_own_sum(const Pass& pass);
  void add_product(const Pass& pass, const Product& what, const Vector& bias, const Vector& norm,
                   dist::OrderedSum* ordered);
  float* ordered_product(const Pass& pass, const char* part, const quant::PanelView& w,
                         dist::OrderedSum& ordered);
  void add_whole(const Pass& pass, const Vector& bias, const Vector& norm, float* sum);
  void add_reduced(const Pass& pass, const Vector& bias, const Vector& norm, Summand write);

  int64_t width_;
  std::vector<nn::KvHeads> kv_heads_;
  nn::KvCache::Options cache_options_;
  float norm_eps_;
  nn::Gating gating_;
  bool norms_over_ranks_;
  float residual_scale_;
  /// By head dim.
  std::map<int64_t, FusedAttention> attentions_;
  dist::Group group_;
  std::vector<Layer> layers_;
  Vector last_norm_;
  /// What layers_ point into.
  std::vector<Linear> linears_;
  std::vector<at::Tensor> kept_;
  HeldLinears held_;
  /// Of all codes; 0: none so far.
  int64_t code_bits_ = 0;
  quant::PanelInputs inputs_;
  LowRankRows low_rank_;
  FusedExperts experts_;
  FusedDelta delta_;
  FusedLatent latent_;
  FloatRows q_, k_, v_, gate_, up_, plain_;
  at::Tensor sum_, own_sum_;
  /// Sums have one order for any number of ranks: those of layers, in the modules.
  bool is_exact_;
  /// [rows, 2], of queries and keys; in one order, of each head of theirs.
  at::Tensor head_squares_;
  float whole_q_, whole_k_;
  bool is_complete_ = false;
};

}  // namespace weft::models
