#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "weft/nn/layers/cloned.h"
#include "weft/nn/parallel/cut_parameters.h"
#include "weft/shard/layout.h"

namespace weft::nn {

/// A causal convolution along the tokens, of each channel by itself: y[t] is the sum over i from 0
/// to L - 1 of weight[c, 0, L - 1 - i] * x[t - i]. Channels are cut over the ranks, which exchange
/// nothing. Source: torch.nn.Conv1d with as many groups as channels, as LFM2 and Gated DeltaNet
/// (arXiv:2412.06464) have it.
class ShortConvolutionImpl : public Cloned<ShortConvolutionImpl, torch::nn::Module>,
                             public CutParameters {
 public:
  /// weight: [c, 1, L], this rank's channels of those that `layout` (dim 0) deals out. Throws
  /// ShapeError for another shape.
  ShortConvolutionImpl(at::Tensor weight, shard::Layout layout, bool requires_grad = false);

  /// x_BTc: floating, this rank's channels. Tokens see none of another document (int64 [B, T],
  /// undefined: each row is one). state_BPc: the P = L - 1 inputs before the tokens, which these
  /// replace by the last ones; undefined: zeros. Returns x's shape and type.
  at::Tensor forward(const at::Tensor& x_BTc, const at::Tensor& documents_BT = {},
                     const at::Tensor& state_BPc = {});

  /// P, how many inputs before a token it sees.
  int64_t num_past() const { return weight.size(2) - 1; }
  std::optional<shard::Layout> layout_of(std::string_view parameter) const override;
  /// As AnyLinear::exchange_members.
  void exchange_members(const MemberExchange& exchange);

  at::Tensor weight;

 private:
  shard::Layout layout_;
};
TORCH_MODULE(ShortConvolution);

}  // namespace weft::nn
