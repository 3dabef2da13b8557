#pragma once

#include <ATen/core/Tensor.h>

#include "weft/nn/attention/attention_spec.h"
#include "weft/nn/attention/rope.h"

namespace weft::nn {

/// Attention over a whole sequence, from queries and keys that rope has not rotated yet:
/// grouped_query_attention of angles.apply(q) and angles.apply(k) with v, `spec` and documents_BT.
/// q_BTnH, k_BTkH, v_BTkH: this rank's heads. Returns [B, T, n * H]. Float32 and bfloat16 take one
/// pass of its own that computes in float32, keeps q, k, v, the output and one number per row for
/// backward, and reads no scores outside of windows and documents; its sums depend on no number of
/// threads. Other types and documents whose number comes back after another's are composed of the
/// two. Throws ShapeError when they don't fit, ConfigError for a gradient of the gradient of the
/// one pass.
at::Tensor rotary_attention(const at::Tensor& q_BTnH, const at::Tensor& k_BTkH,
                            const at::Tensor& v_BTkH, const RopeAngles& angles,
                            const AttentionSpec& spec, const at::Tensor& documents_BT = {});

/// The same, always composed: what the one pass is compared with.
at::Tensor composed_rotary_attention(const at::Tensor& q_BTnH, const at::Tensor& k_BTkH,
                                     const at::Tensor& v_BTkH, const RopeAngles& angles,
                                     const AttentionSpec& spec,
                                     const at::Tensor& documents_BT = {});

}  // namespace weft::nn
