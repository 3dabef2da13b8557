#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>

#include "weft/nn/linear/linear_like.h"

namespace weft::nn {

/// A weight of float16 or bfloat16 in half of float32's memory, for inference: buffers "weight"
/// [out, in] and, if defined, "bias" [out]. Products are those of DenseLinear with the same numbers
/// in float32, because a few rows at a time are widened to that, which is exact. The weight is
/// frozen; gradients pass through to the input. It only computes, so it can't be cut.
class HalfLinearImpl : public LinearLike {
 public:
  /// Keeps the tensors given. Throws ShapeError unless weight is 2-d and bias fits, ConfigError for
  /// a weight of another type.
  explicit HalfLinearImpl(at::Tensor weight, at::Tensor bias = {});
  at::Tensor forward(const at::Tensor& x) override;
  /// In float32.
  at::Tensor rows(const at::Tensor& indices) override;
  int64_t in_features() const override { return weight.size(1); }
  int64_t out_features() const override { return weight.size(0); }
  int64_t weight_bytes() const override { return static_cast<int64_t>(weight.nbytes()); }
  at::Tensor bias_or_undefined() const override { return bias; }
  at::Tensor dense_weight() const override;

  at::Tensor weight;
  at::Tensor bias;
};
TORCH_MODULE(HalfLinear);

}  // namespace weft::nn
