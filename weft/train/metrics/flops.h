#pragma once

#include <cstdint>
#include <optional>

namespace weft::train {

/// What the arithmetic of a token depends on.
struct FlopSizes {
  /// Parameters that a token is multiplied by: all, without an embedding table that is only looked
  /// up. A tied table counts, as the head.
  int64_t num_parameters = 0;
  /// Query heads times head dim, summed over the layers that have attention.
  int64_t attention_width = 0;
  /// Tokens of a sequence.
  int64_t sequence_length = 0;
  /// The parameters themselves have gradients; false: they are frozen beside adapters.
  bool trains_parameters = true;
};

/// Floating-point operations per token of forward and backward: 6 N + 12 L H T (PaLM,
/// arXiv:2204.02311, appendix B), L H the attention's width. Two for each parameter in forward and
/// four in backward, two if it is frozen (what adapters add is left out); attention counts all T
/// keys of a query although half are masked, and what activation checkpointing computes again does
/// not count: so MFU compares implementations.
double flops_per_token(const FlopSizes& sizes);

/// Model FLOPs utilization, 0 to 1: `tokens_per_s` of all ranks against the peak of all ranks. None
/// if the peak is not known (0).
std::optional<double> model_flops_utilization(double tokens_per_s, double flops_per_token,
                                              double peak_flops);

}  // namespace weft::train
