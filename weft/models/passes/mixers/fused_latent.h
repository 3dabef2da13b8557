#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weft/core/memory/scratch.h"
#include "weft/models/decoder/mixers/latent_attention_layer.h"
#include "weft/models/passes/float_rows.h"
#include "weft/models/passes/held_linears.h"
#include "weft/models/passes/pass_caches.h"
#include "weft/nn/attention/latent_attention.h"
#include "weft/nn/attention/rope.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/quant/panels/panel_matrix.h"

namespace weft::models {

/// The latent attention of a fused pass: what LatentAttentionLayer computes between the products
/// that make latents and queries and the output's, in memory that the next layer will use again.
/// The cache keeps what the layer's does. Tokens read latents as they are
/// (nn::absorbed_latent_attention); a few have the bits then that each has alone. Where many tokens
/// stand behind so few others that it costs less, keys and values are made of the latents
/// (nn::expanded_latent_attention), some heads at a time.
///
/// Shape letters: those of nn::LatentHeads; d the queries' latent, c what is kept of a token, R +
/// P.
class FusedLatent {
 public:
  /// What a pass reads of a layer; valid while the linears live that it was taken from.
  struct Layer {
    /// Without a query latent that one has no panels.
    quant::PanelView query_latent, query, kv_latent, key_value, output;
    /// What the plain features of a head's query are multiplied by, [n R, N]: its keys' weights the
    /// other way round.
    quant::PanelMatrix absorbing;
    nn::LatentHeads heads;
    /// This rank's.
    int64_t num_heads = 0;
    /// [d], undefined without a query latent; [R].
    at::Tensor query_norm, kv_norm;
    /// What key_value is a view of, and what the others are.
    std::shared_ptr<nn::PanelLinearImpl> key_value_linear;
    std::vector<std::shared_ptr<nn::PanelLinearImpl>> linears;

    /// Whether queries are made of a latent of their own rather than of the layer's input.
    bool has_query_latent() const { return query_norm.defined(); }
    /// What lies between the projections: takes heads, key_value and what follows from them, and
    /// kv_norm. `weight` is of [R], `linear` has n (N + V) rows of R.
    void take_heads(const nn::LatentHeads& own, std::shared_ptr<nn::PanelLinearImpl> linear,
                    const at::Tensor& weight);
  };
  /// A layer's part of a pass.
  struct Call : PassCaches {
    int64_t layer = 0;
    /// What turns the last features of queries and of what is kept.
    const nn::RopeAngles* angles = nullptr;
  };

  /// With `is_exact` passes of any length read the cache as those of few tokens do, so that a
  /// token's output has the same bits in all of them.
  explicit FusedLatent(bool is_exact) : is_exact_(is_exact) {}

  /// A layer as the passes read it; none if one of its linears is not in panels, or parts of a head
  /// are no whole panels. Notes in `held` what it takes.
  static std::optional<Layer> take(const LatentAttentionLayerImpl& layer, HeldLinears& held);
  /// Passes will run this layer.
  void add_wants(const Layer& layer);

  /// Where the products go before run: [rows, d], [rows, n (N + P)] and [rows, c].
  FloatRows query_latents, queries, latents;
  /// A row of query_latents, normed, in `room`.
  const float* normed_query_latent(const Layer& layer, int64_t row, float* room) const;

  /// Norms and turns latents, turns queries, writes latents behind the caches' positions, which the
  /// caller advances. Returns the rows' outputs, n V each, end to end, until the next call. Not
  /// collective.
  const float* run(const Layer& layer, const Call& call);

 private:
  /// Of an expanded pass: heads [first, first + count) of this rank.
  struct HeadRun {
    int64_t first, count;
  };
  void turn(const Layer& layer, const Call& call);
  bool expands(const Layer& layer, const Call& call) const;
  void absorb_queries(const Layer& layer, const Call& call);
  void attend_latents(const Layer& layer, const Call& call);
  void make_values(const Layer& layer, const Call& call);
  template <class RowOf>
  void take_by_head(const Layer& layer, const Call& call, int64_t in, quant::PanelInputs& inputs,
                    RowOf&& row_of);

  void attend_expanded(const Layer& layer, const Call& call);
  void take_positions(const Layer& layer, const Call& call);
  int64_t heads_at_once(const Layer& layer, const Call& call) const;
  void take_tiles(const Layer& layer, const Call& call, const HeadRun& run);
  void take_tile(const Layer& layer, const Call& call, const HeadRun& run, int64_t index,
                 int64_t tile);
  void attend_tiles(const Layer& layer, const Call& call, const HeadRun& run);
  void attend_tile(const Layer& layer, const Call& call, const HeadRun& run, int64_t index,
                   int64_t tile);

  bool is_exact_;
  /// Of queries' plain features by head; of means of latents by head, or of all positions' latents.
  quant::PanelInputs query_inputs_, latent_inputs_;
  std::vector<int64_t> starts_;
  std::vector<quant::PanelProduct> products_;
  /// [rows, n, c], and means of what is kept in the same places.
  core::Scratch<float> absorbed_, means_;
  /// Of each thread.
  core::Scratch<float> scores_;
  /// Of an expanded pass: [B S, P]; keys and values of some heads as products give them, and as
  /// tiles.
  core::Scratch<float> turned_keys_, made_, tiles_;
  core::Scratch<float> out_;
};

}  // namespace weft::models
