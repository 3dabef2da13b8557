#pragma once

#include <cstdint>

#include "weft/cuda/kernels/gating.h"

namespace weft::cuda {

/// What is added to rows of the residual stream, and their norm: all pointers into the GPU's
/// memory.
struct NormCall {
  /// [rows, width]; gets `added` and `bias`, each times `added_scale`.
  float* x = nullptr;
  /// [rows, width]; null: nothing.
  const float* added = nullptr;
  /// [width]; null: nothing.
  const float* bias = nullptr;
  /// [width] of a norm that their sum goes through before it is added; null: none.
  const float* added_weight = nullptr;
  /// [width].
  const float* weight = nullptr;
  /// [rows, width]: x * weight / sqrt(mean(x^2) + eps) of what x has become.
  float* normed = nullptr;
  int32_t rows = 0;
  int32_t width = 0;
  float added_scale = 1;
  float eps = 0;
};
/// Adds and norms. Source: Zhang and Sennrich 2019, arXiv:1910.07467.
void add_and_norm(const NormCall& call);

/// gate = gated(gate + gate_bias, up + up_bias), [rows, width]; biases [width] or null.
struct GateCall {
  float* gate = nullptr;
  const float* up = nullptr;
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  int32_t rows = 0;
  int32_t width = 0;
  Gating gating;
};
/// Does so, in place.
void apply_gate(const GateCall& call);

}  // namespace weft::cuda
