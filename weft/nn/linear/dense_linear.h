#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/nn/linear/linear_like.h"

namespace weft::nn {

/// A floating-point weight; parameters "weight" [out, in] and, if defined, "bias" [out].
class DenseLinearImpl : public Cloned<DenseLinearImpl, ShardableLinear> {
 public:
  /// Keeps the tensors given. Throws ShapeError unless weight is 2-d and bias fits.
  explicit DenseLinearImpl(at::Tensor weight, at::Tensor bias = {}, bool requires_grad = false);
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor rows(const at::Tensor& indices) override;
  int64_t in_features() const override { return weight.size(1); }
  int64_t out_features() const override { return weight.size(0); }
  int64_t weight_bytes() const override;
  at::Tensor bias_or_undefined() const override { return bias; }
  at::Tensor dense_weight() const override { return weight.detach(); }
  int64_t column_unit(int64_t) const override { return 1; }
  std::shared_ptr<LinearLike> shard(const LinearCut& cut) const override;
  std::shared_ptr<LinearLike> unshard(const LinearCut& cut, const at::Tensor& bias) const override;
  void exchange_members(const MemberExchange& exchange) override;

  /// Says that this is a shard of which other ranks hold some rows, too (kv heads over more ranks
  /// than there are): forward then has backward sum their gradients. Nothing without overlap.
  void share_rows(const LinearCut& cut);
  bool sums_shared_rows() const { return shared_.has_value(); }

  at::Tensor weight;
  at::Tensor bias;

 private:
  // Set where other ranks hold some of this shard's rows, too.
  std::optional<LinearCut> shared_;
};
TORCH_MODULE(DenseLinear);

}  // namespace weft::nn
