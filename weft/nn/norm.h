#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace weft::nn {

/// x * weight / sqrt(mean(x^2) + eps) over the last dim, computed in float32.
/// Source: Zhang and Sennrich 2019, arXiv:1910.07467.
class RMSNormImpl : public torch::nn::Module {
 public:
  RMSNormImpl(at::Tensor weight, double eps, bool requires_grad = false);
  /// x: [..., D] floating. Returns the same shape and dtype.
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight;

 private:
  double eps_;
};
TORCH_MODULE(RMSNorm);

}  // namespace weft::nn
