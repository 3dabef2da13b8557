#pragma once

#include <ATen/core/Tensor.h>

#include "weft/nn/attention/attention_spec.h"

namespace weft::nn {

/// The attention that `spec` describes. q_BnTH are the last T of S positions; k_BkSH and v_BkSH are
/// all S positions of this rank's kv heads; a value's H may be another one than a key's. Keys and
/// values before every query's window are not read.
/// `documents_BS`: int64 numbers; a query sees only positions of its own number. Undefined: all.
/// Returns [B, T, n * H], H being a value's. Throws ShapeError when they don't fit.
at::Tensor grouped_query_attention(const at::Tensor& q_BnTH, const at::Tensor& k_BkSH,
                                   const at::Tensor& v_BkSH, const AttentionSpec& spec,
                                   const at::Tensor& documents_BS = {});

}  // namespace weft::nn
