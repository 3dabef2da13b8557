#pragma once

#include <ATen/core/Tensor.h>

#include "weft/nn/attention/attention_spec.h"

namespace weft::nn {

/// Causal attention of each token by itself: a head's output has the same bits whichever other
/// heads and tokens there are, and with any number of threads. q_BTnH: turned queries. k_BkSH,
/// v_BkSH: keys and values of all positions, the last T of which are the tokens' own. All float32;
/// without gradients. `spec` as grouped_query_attention has it. Returns [B, T, n * H].
at::Tensor attend_each(const at::Tensor& q_BTnH, const at::Tensor& k_BkSH, const at::Tensor& v_BkSH,
                       const AttentionSpec& spec);

}  // namespace weft::nn
