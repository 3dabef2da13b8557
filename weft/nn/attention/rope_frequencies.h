#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "weft/nn/attention/rope_scaling.h"

namespace weft::nn {

/// Radians per position of the pairs, and what cos and sin are multiplied by.
struct RopeFrequencies {
  /// float32 [dim / 2].
  at::Tensor values;
  double attention_factor = 1;
};

/// The frequencies of `dim` rotated features for a sequence of `length` positions; only kDynamic
/// depends on the length. Computed in float32 in the order of Hugging Face transformers'
/// ROPE_INIT_FUNCTIONS, so that tables agree to the last bits.
RopeFrequencies rope_frequencies(int64_t dim, double base, const RopeScaling& scaling,
                                 int64_t length);

}  // namespace weft::nn
