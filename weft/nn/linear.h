#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

#include "weft/quant/affine.h"

namespace weft::nn {

/// What every inner linear layer is: y = x w^T + bias on this rank alone, with w [out, in].
/// Parallel layers hold one and add only the communication, so a new quantization or adapter is one
/// more subclass and needs no new parallel layer.
class LinearLike : public torch::nn::Module {
 public:
  /// x: [..., in]. Returns [..., out] in x's dtype. Throws ShapeError for another last dim.
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  /// Rows of w by `indices` (int64, any shape), for embeddings: [..., in], floating.
  virtual at::Tensor rows(const at::Tensor& indices) = 0;
  virtual int64_t in_features() const = 0;
  virtual int64_t out_features() const = 0;
  /// Bytes of the weight as it is held, scales and offsets included, without the bias.
  virtual int64_t weight_bytes() const = 0;
  virtual bool has_bias() const = 0;
};

/// A floating-point weight; parameters "weight" [out, in] and, if defined, "bias" [out].
class DenseLinearImpl : public LinearLike {
 public:
  /// Keeps the tensors given. Throws ShapeError unless weight is 2-d and bias fits.
  explicit DenseLinearImpl(at::Tensor weight, at::Tensor bias = {}, bool requires_grad = false);
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor rows(const at::Tensor& indices) override;
  int64_t in_features() const override { return weight.size(1); }
  int64_t out_features() const override { return weight.size(0); }
  int64_t weight_bytes() const override;
  bool has_bias() const override { return bias.defined(); }

  at::Tensor weight;
  at::Tensor bias;
};
TORCH_MODULE(DenseLinear);

/// An affine-quantized weight; buffers "weight" (packed), "scales", "offsets". The weight is
/// frozen; gradients pass through to the input.
class QuantizedLinearImpl : public LinearLike {
 public:
  /// Keeps the tensors given. Throws ShapeError as quant::check_affine does, or if bias does not
  /// fit.
  explicit QuantizedLinearImpl(quant::AffineTensor weight, at::Tensor bias = {});
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor rows(const at::Tensor& indices) override;
  int64_t in_features() const override { return weight.in_features(); }
  int64_t out_features() const override { return weight.out_features(); }
  int64_t weight_bytes() const override { return weight.num_bytes(); }
  bool has_bias() const override { return bias.defined(); }

  quant::AffineTensor weight;
  at::Tensor bias;
};
TORCH_MODULE(QuantizedLinear);

}  // namespace weft::nn
