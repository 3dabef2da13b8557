#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/nn/layers/cloned.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/parallel/cut_parameters.h"
#include "weft/nn/recurrent/delta_heads.h"
#include "weft/nn/recurrent/short_convolution.h"
#include "weft/shard/layout.h"

namespace weft::nn {

/// One number for each head of heads that are cut over the ranks: the parameter "weight".
class HeadNumbersImpl : public Cloned<HeadNumbersImpl, torch::nn::Module>, public CutParameters {
 public:
  /// weight: [v], this rank's heads' of those that `layout` (dim 0) deals out. Throws ShapeError
  /// for another shape.
  HeadNumbersImpl(at::Tensor weight, shard::Layout layout, bool requires_grad = false);
  std::optional<shard::Layout> layout_of(std::string_view parameter) const override;
  /// As AnyLinear::exchange_members.
  void exchange_members(const MemberExchange& exchange);

  at::Tensor weight;

 private:
  shard::Layout layout_;
};
TORCH_MODULE(HeadNumbers);

/// The layers inside of a gated delta net, this rank's part of each.
struct GatedDeltaParts {
  /// Over [queries | keys | values], heads one after the other.
  ShortConvolution convolution{nullptr};
  /// The logarithm of how fast a head forgets, and what is added before its softplus.
  HeadNumbers decay_log{nullptr};
  HeadNumbers step_bias{nullptr};
  /// Of each head's values.
  HeadRMSNorm norm{nullptr};
};

/// What is projected from the tokens, this rank's heads: c = num_channels(), v value heads of V
/// features.
struct DeltaProjections {
  at::Tensor channels_BTc;
  /// The gate of the output.
  at::Tensor gates_BTf;
  /// Before the sigmoid, and before the softplus.
  at::Tensor rates_BTv;
  at::Tensor decays_BTv;
};

/// What a gated delta net keeps of the tokens so far: {the convolution's last inputs [B, P, c], the
/// state of the rule [B, v, K, V]}. Empty: nothing is kept.
using DeltaState = std::vector<at::Tensor>;
/// The sizes of both, of one sequence.
std::vector<std::vector<int64_t>> delta_state_sizes(const DeltaHeads& heads, int64_t num_past);

/// A gated delta net between its projections: channels are convolved and put through silu; of each
/// head the delta rule with decay -exp(decay_log) * softplus(decays + step_bias) and rate
/// sigmoid(rates); its output normed and multiplied by silu(gates). `heads` are this rank's.
/// Documents as in delta_rule; the state is overwritten. Returns [B, T, v * V] of the channels'
/// type. Throws ShapeError for sizes that don't fit. Collective in backward alone: one all-reduce
/// of the norm's gradient. Sources: arXiv:2412.06464; transformers' modeling_qwen3_next.py.
at::Tensor gated_delta_net(const DeltaHeads& heads, GatedDeltaParts& parts,
                           const DeltaProjections& in, const at::Tensor& documents_BT = {},
                           const DeltaState& state = {});

}  // namespace weft::nn
