#pragma once

#include <cstdint>

namespace weft::nn {

/// What a gated feed-forward layer makes of gate and up.
enum class Activation : uint8_t {
  /// silu(gate) * up. Source: Shazeer 2020, arXiv:2002.05202.
  kSilu,
  /// gelu(gate) * up, by the approximation with tanh (Hendrycks and Gimpel 2016, arXiv:1606.08415),
  /// as Gemma has it.
  kGeluTanh,
  /// g * sigmoid(1.702 g) * (u + 1), where g is gate up to a limit and u is up between plus and
  /// minus the limit, as gpt-oss has it.
  kClamped,
};

/// An activation and its limit, which kClamped alone has.
struct Gating {
  Activation activation = Activation::kSilu;
  double limit = 0;

  bool operator==(const Gating&) const = default;
};

}  // namespace weft::nn
