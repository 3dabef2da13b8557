#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/nn/attention/rope.h"

namespace weft::nn {

/// What queries see: see grouped_query_attention.
struct AttentionScope {
  /// Which of this rank's kv heads each query head reads, ascending.
  std::vector<int64_t> kv_of_head;
  int64_t window = 0;
  at::Tensor documents_BT = {};
};

/// Attention over a whole sequence, from queries and keys that rope has not rotated yet:
/// grouped_query_attention of angles.apply(q) and angles.apply(k) with v. q_BTnH, k_BTkH, v_BTkH:
/// this rank's heads. Returns [B, T, n * H]. Float32 and bfloat16 take one pass of its own that
/// computes in float32, keeps q, k, v, the output and one number per row for backward, and reads
/// no scores outside of windows and documents; its sums depend on no number of threads. Other types
/// and documents whose number comes back after another's are composed of the two. Throws
/// ShapeError when they don't fit, ConfigError for a gradient of the gradient of the one pass.
at::Tensor rotary_attention(const at::Tensor& q_BTnH, const at::Tensor& k_BTkH,
                            const at::Tensor& v_BTkH, const RopeAngles& angles,
                            const AttentionScope& scope);

/// The same, always composed: what the one pass is compared with.
at::Tensor composed_rotary_attention(const at::Tensor& q_BTnH, const at::Tensor& k_BTkH,
                                     const at::Tensor& v_BTkH, const RopeAngles& angles,
                                     const AttentionScope& scope);

}  // namespace weft::nn
