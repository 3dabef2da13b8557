#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace weft::nn {

/// Rotary position embedding tables for positions 0 … max_positions - 1.
/// Pairs are (i, i + H/2) of a head, as Hugging Face's Llama has them.
/// Source: Su et al. 2021, arXiv:2104.09864.
class Rope {
 public:
  /// head_dim even. Throws ConfigError otherwise, or for a base that is not positive and finite.
  Rope(int64_t head_dim, double base, int64_t max_positions);

  /// x_BTnH at positions start … start + T - 1. Returns the rotated, same shape and dtype.
  at::Tensor apply(const at::Tensor& x_BTnH, int64_t start) const;
  int64_t max_positions() const { return cos_SH_.size(0); }

 private:
  at::Tensor cos_SH_;
  at::Tensor sin_SH_;
};

}  // namespace weft::nn
