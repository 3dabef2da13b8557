#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/core/memory/scratch.h"
#include "weft/models/decoder/mixers/gated_delta_layer.h"
#include "weft/models/passes/float_rows.h"
#include "weft/models/passes/held_linears.h"
#include "weft/models/passes/pass_caches.h"
#include "weft/nn/attention/kv_cache.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/quant/panels/panel_matrix.h"

namespace weft::models {

/// The gated delta nets of a fused pass: what nn::gated_delta_net computes between its projections,
/// head by head, in memory that the next layer will use again. A token has the same bits in passes
/// of any length, and alone or beside other sequences.
class FusedDelta {
 public:
  /// What a pass reads of a layer; valid while the linears live that it was taken from.
  struct Layer {
    quant::PanelView channels, gates, rates, decays, output;
    /// This rank's.
    nn::DeltaHeads heads;
    /// The convolution's, [taps, channels].
    at::Tensor taps;
    /// Of each value head what is multiplied by a softplus, -exp(decay_log), and what is added
    /// before it.
    at::Tensor decay_factors, step_bias;
    /// Of the values' norm, [V]; of those that make keys and queries as long as they count, [K].
    at::Tensor norm, key_norm, query_norm;
    std::vector<std::shared_ptr<nn::PanelLinearImpl>> linears;

    /// What lies between the projections. False for a convolution of more than kMaxTaps.
    bool take_net(const nn::DeltaHeads& own, const nn::GatedDeltaParts& parts);
  };
  static constexpr int64_t kMaxTaps = 16;
  /// A layer's part of a pass. No cache twice: a state goes on from token to token.
  struct Call : PassCaches {
    int64_t layer = 0;
    /// Of the values' norm.
    float norm_eps = 0;
  };

  /// A layer as the passes read it; none if one of its linears is not in panels. Notes in `held`
  /// what it takes.
  static std::optional<Layer> take(const GatedDeltaLayerImpl& layer, HeldLinears& held);

  /// Where the projections' products go before run.
  FloatRows channels, gates, rates, decays;

  /// Goes on from the caches' states, which it overwrites. Returns the rows' outputs,
  /// heads.value_features() each, end to end, until the next call. Not collective.
  const float* run(const Layer& layer, const Call& call);

 private:
  struct Room;
  void run_head(const Layer& layer, const Call& call, int64_t sequence, int64_t key_head,
                const Room& room);
  void run_block(const Layer& layer, const Call& call, const Room& room, int64_t key_head);
  void run_values(const Layer& layer, const Call& call, const Room& room, int64_t head);

  core::Scratch<float> out_, room_;
};

}  // namespace weft::models
