#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>

#include "weft/nn/linear/linear_like.h"

namespace weft::nn {

/// This rank's part of a trained adapter of one layer: the layer's output gains scale (x A^T) B^T.
struct LowRank {
  /// A [r, in] and B [out, r], float32 without gaps.
  at::Tensor a, b;
  double scale = 1;
};

/// A linear layer with trained low-rank adapters, of which each sequence uses one, or none
/// (AdapterScope): y = base(x) + scale (x A^T) B^T. Without gradients; LoraLinear trains one.
/// Source: Hu et al. 2021, arXiv:2106.09685.
class AdaptedLinearImpl : public Cloned<AdaptedLinearImpl, LinearLike> {
 public:
  explicit AdaptedLinearImpl(std::shared_ptr<LinearLike> base);

  /// Throws ConfigError if there is one of that number, ShapeError unless A and B fit the base.
  void add(int64_t number, LowRank adapter);
  /// Null: sequences with this number get what the base gives.
  const LowRank* find(int64_t number) const;
  const std::shared_ptr<LinearLike>& base() const { return base_; }

  /// With numbers for several sequences x is [sequences, ...], and each sequence's rows have the
  /// bits that they have alone if those of the base have. Throws ShapeError for another x.
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor rows(const at::Tensor& indices) override;
  int64_t in_features() const override { return base_->in_features(); }
  int64_t out_features() const override { return base_->out_features(); }
  /// With all adapters.
  int64_t weight_bytes() const override;
  at::Tensor bias_or_undefined() const override { return base_->bias_or_undefined(); }
  /// With the adapter's product that the scope names.
  at::Tensor dense_weight() const override;
  void exchange_members(const MemberExchange& exchange) override;

 private:
  std::shared_ptr<LinearLike> base_;
  std::map<int64_t, LowRank> adapters_;
};

}  // namespace weft::nn
