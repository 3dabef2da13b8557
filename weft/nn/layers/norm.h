#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weft/dist/group.h"
#include "weft/nn/layers/cloned.h"
#include "weft/shard/layout.h"
#include "weft/shard/sum_order.h"

namespace weft::nn {

/// x * (weight + offset) / sqrt(mean(x^2) + eps) over the last dim, computed in float32.
/// Sources: Zhang and Sennrich 2019, arXiv:1910.07467; an offset of 1: Gemma, arXiv:2403.08295.
class RMSNormImpl : public Cloned<RMSNormImpl, torch::nn::Module> {
 public:
  RMSNormImpl(at::Tensor weight, double eps, bool requires_grad = false, double offset = 0);
  /// x: [..., D] floating. Returns the same shape and dtype.
  at::Tensor forward(const at::Tensor& x);
  /// The same of sequences end to end, of as many rows each, whose parts of the weight's gradient
  /// are added by `order`: a piece for each sequence, one node. x: float32 on the CPU.
  at::Tensor forward_in_order(const at::Tensor& x,
                              const std::shared_ptr<const shard::SumPlan>& order);
  /// weight + offset, without gradients: of the weight's type, or float32 where there is an offset.
  at::Tensor whole_weight() const;
  /// As AnyLinear::exchange_members.
  void exchange_members(const MemberExchange& exchange);

  at::Tensor weight;

 private:
  double eps_;
  double offset_;
};
TORCH_MODULE(RMSNorm);

/// x / sqrt(mean(x^2) + eps) over the last dim, computed in float32 (float64 for float64): RMSNorm
/// without a weight, which is the same wherever dims before the last are cut. x: [..., D] floating.
/// Returns the same shape and dtype. Source: the values' norm of Gemma 4.
at::Tensor unit_norm(const at::Tensor& x, double eps);

/// RMSNorm for activations that are cut along the sequence. Each rank norms its own tokens; the
/// weight is whole and equal on all ranks, and so is its gradient, which is summed over them.
/// Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.
class SequenceParallelRMSNormImpl : public Cloned<SequenceParallelRMSNormImpl, torch::nn::Module> {
 public:
  /// weight: [D], equal on all ranks.
  SequenceParallelRMSNormImpl(at::Tensor weight, double eps, dist::Group group,
                              bool requires_grad = false);
  /// x: [..., D] floating, this rank's tokens; numbers may differ. Returns the same shape and
  /// dtype. Collective in backward: one all-reduce of [D].
  at::Tensor forward(const at::Tensor& x);
  /// As AnyLinear::exchange_members.
  void exchange_members(const MemberExchange& exchange);

  at::Tensor weight;

 private:
  double eps_;
  dist::Group group_;
};
TORCH_MODULE(SequenceParallelRMSNorm);

/// RMSNorm of each attention head on its own, where heads are cut over the ranks: one weight for
/// all heads, whole and equal on all ranks, and so is its gradient, which is summed over them (also
/// where kv heads are replicated: each copy has its own queries' part). Source: Henry et al. 2020,
/// arXiv:2010.04245, as Qwen3 has it.
class HeadRMSNormImpl : public Cloned<HeadRMSNormImpl, torch::nn::Module> {
 public:
  /// weight: [H], equal on all ranks; offset: as RMSNorm's.
  HeadRMSNormImpl(at::Tensor weight, double eps, dist::Group group, bool requires_grad = false,
                  double offset = 0);
  /// x_BTnH: floating, this rank's heads. Returns the same shape and dtype. Throws ShapeError for
  /// heads of another size. Collective in backward: one all-reduce of [H].
  at::Tensor forward(const at::Tensor& x_BTnH);
  /// As RMSNorm's.
  at::Tensor whole_weight() const;
  /// As AnyLinear::exchange_members.
  void exchange_members(const MemberExchange& exchange);

  at::Tensor weight;

 private:
  double eps_;
  dist::Group group_;
  double offset_;
};
TORCH_MODULE(HeadRMSNorm);

/// RMSNorm over a dim that is cut over the ranks: the mean is that of the whole dim. Of features
/// that several ranks hold (kv heads over more ranks than kv heads) one copy counts.
class ShardedRMSNormImpl : public Cloned<ShardedRMSNormImpl, torch::nn::Module> {
 public:
  /// weight: [d], this rank's part of [D]; `whole_size` is D.
  ShardedRMSNormImpl(at::Tensor weight, int64_t whole_size, double eps, dist::Group group,
                     bool requires_grad = false);
  /// weight: this rank's part of [D], which the ranks of `group` share as `layout` (dim 0) says. A
  /// weight that several ranks hold has its gradient summed over them, so that copies stay equal.
  ShardedRMSNormImpl(at::Tensor weight, shard::Layout layout, double eps, dist::Group group,
                     bool requires_grad = false);
  /// x: [..., d] floating, this rank's part of [..., D]. Returns the same shape and dtype; computed
  /// in float32 (float64 for float64). Collective: one all-reduce of [...] float32 sums of squares,
  /// and one in backward, one more of [D] there if parts overlap.
  at::Tensor forward(const at::Tensor& x);
  /// What every rank holds; none: it was not said.
  const std::optional<shard::Layout>& layout() const { return layout_; }
  /// Runs of this rank's features that count here in the whole's sum of squares.
  const std::vector<shard::Range>& counted() const { return counted_; }
  /// As AnyLinear::exchange_members.
  void exchange_members(const MemberExchange& exchange);

  at::Tensor weight;

 private:
  at::Tensor own_sum(const at::Tensor& values) const;

  int64_t whole_size_;
  std::optional<shard::Layout> layout_;
  std::vector<shard::Range> counted_;
  double eps_;
  dist::Group group_;
};
TORCH_MODULE(ShardedRMSNorm);

}  // namespace weft::nn
