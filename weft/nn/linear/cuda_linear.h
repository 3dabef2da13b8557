#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

#include "weft/cuda/matrix.h"
#include "weft/nn/linear/linear_like.h"

namespace weft::nn {

/// A weight on this process's GPU, for inference; activations are tensors of the CPU, which travel
/// for each call. What travels once for a whole pass is models::CudaDecoder. Buffer "bias" on the
/// CPU; the weight is no tensor.
class CudaLinearImpl : public LinearLike {
 public:
  /// Keeps what it is given. Throws ShapeError if bias does not fit.
  explicit CudaLinearImpl(cuda::Matrix weight, at::Tensor bias = {});
  /// Summed in float32. Throws ConfigError for an input that needs a gradient.
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor rows(const at::Tensor& indices) override;
  int64_t in_features() const override { return weight.view().in; }
  int64_t out_features() const override { return weight.view().out; }
  int64_t weight_bytes() const override { return weight.num_bytes(); }
  at::Tensor bias_or_undefined() const override { return bias; }
  at::Tensor dense_weight() const override;

  cuda::Matrix weight;
  at::Tensor bias;
};
TORCH_MODULE(CudaLinear);

/// The same layer with its weight on this process's GPU (cuda::select_device): codes of affine
/// quantization and plain numbers as they are, other forms as the plain numbers that they stand
/// for. Throws ShapeError for rows that are not multiples of 8 columns, IoError where the GPU is
/// full.
std::shared_ptr<LinearLike> on_cuda(const LinearLike& linear);

}  // namespace weft::nn
