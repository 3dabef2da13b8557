#pragma once

#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "weft/nn/layers/dropout.h"
#include "weft/nn/linear/linear_like.h"

namespace weft::nn {

/// A linear layer with a low-rank adapter: y = base(x) + scale (x A^T) B^T. Parameters "lora_a"
/// [r, in] and "lora_b" [out, r]; the base, dense or quantized, gets no gradient here.
/// Cut over ranks it follows its base: by output features A is whole and B cut by rows, by input
/// features A is cut by columns, before the sum over ranks, and B whole. The factor that stays
/// whole sums its gradient over the ranks, so that its copies stay equal.
/// Source: Hu et al. 2021, arXiv:2106.09685.
class LoraLinearImpl : public Cloned<LoraLinearImpl, ShardableLinear> {
 public:
  /// Keeps what is given; `cut` says how all three were cut already. Freezes the base. Throws
  /// ShapeError unless A and B fit the base.
  LoraLinearImpl(std::shared_ptr<LinearLike> base, at::Tensor lora_a, at::Tensor lora_b,
                 double scale, std::optional<LinearCut> cut = {});

  /// Collective in backward if it was cut: one all-reduce of the whole factor's gradient.
  at::Tensor forward(const at::Tensor& x) override;
  at::Tensor rows(const at::Tensor& indices) override;
  int64_t in_features() const override { return base_->in_features(); }
  int64_t out_features() const override { return base_->out_features(); }
  int64_t weight_bytes() const override;
  at::Tensor bias_or_undefined() const override { return base_->bias_or_undefined(); }
  /// With the adapter's product added.
  at::Tensor dense_weight() const override;
  /// These three throw ConfigError if the base can't be cut.
  int64_t column_unit(int64_t n) const override;
  std::shared_ptr<LinearLike> shard(const LinearCut& cut) const override;
  std::shared_ptr<LinearLike> unshard(const LinearCut& cut, const at::Tensor& bias) const override;
  void exchange_members(const MemberExchange& exchange) override;
  /// The merged weight as well.
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;
  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;

  /// Computes with one dense weight, base and adapter together, until unmerge. The base is kept
  /// beside it, so that unmerge gives back its bits. Merged again, nothing changes.
  void merge();
  void unmerge() { merged_.reset(); }
  bool is_merged() const { return merged_ != nullptr; }

  const std::shared_ptr<LinearLike>& base() const { return base_; }
  /// Exchanges the base for one of the same sizes, e.g. its quantized form. Un-merges.
  void set_base(std::shared_ptr<LinearLike> base);
  double scale() const { return scale_; }
  /// Drops elements of the adapter's input, not of the base's, in training mode. Their rows are
  /// those of the PlaceScope around forward (ConfigError without one).
  void set_dropout(const DropoutDraw& draw) { dropout_ = draw; }

  at::Tensor lora_a;
  at::Tensor lora_b;

 private:
  void freeze_base();
  at::Tensor adapter_input(const at::Tensor& x) const;

  std::shared_ptr<LinearLike> base_;
  double scale_;
  std::optional<LinearCut> cut_;
  DropoutDraw dropout_;
  // Not a child: it is no parameter of the model.
  std::shared_ptr<LinearLike> merged_;
};
TORCH_MODULE(LoraLinear);

}  // namespace weft::nn
