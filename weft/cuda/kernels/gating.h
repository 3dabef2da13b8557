#pragma once

#include <cstdint>

#include "weft/cuda/kernels/arithmetic.h"

namespace weft::cuda {

/// What a feed-forward layer makes of gate and up, as nn::Activation has it.
enum class Activation : uint8_t { kSilu, kGeluTanh, kClamped };

/// An activation and its limit, which kClamped alone has.
struct Gating {
  Activation activation = Activation::kSilu;
  float limit = 0;
};

/// gelu(gate) * up, by the approximation with tanh. Source: Hendrycks and Gimpel 2016,
/// arXiv:1606.08415.
WEFT_BOTH float geglu(float gate, float up) {
  constexpr float kSqrtTwoOverPi = 0.79788456F, kCubic = 0.044715F;
  const float inner = kSqrtTwoOverPi * (gate + kCubic * gate * gate * gate);
  return 0.5F * gate * (1 + tanhf(inner)) * up;
}

/// As gpt-oss has it, see nn::Activation. What is no number stays none.
WEFT_BOTH float clamped_swiglu(float gate, float up, float limit) {
  constexpr float kSlope = 1.702F;
  const float g = gate > limit ? limit : gate;
  const float most = up > limit ? limit : up;
  const float u = most < -limit ? -limit : most;
  return g / (1 + expf(-kSlope * g)) * (u + 1);
}

/// What the gating makes of both.
WEFT_BOTH float gated(float gate, float up, const Gating& gating) {
  if (gating.activation == Activation::kGeluTanh) return geglu(gate, up);
  if (gating.activation == Activation::kClamped) return clamped_swiglu(gate, up, gating.limit);
  return swiglu(gate, up);
}

}  // namespace weft::cuda
