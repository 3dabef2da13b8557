#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>

#include "weft/dist/group.h"
#include "weft/nn/linear.h"

namespace weft::nn {

/// Column parallel: the input is whole and equal on all ranks, the output is this rank's shard of
/// the output features. Forward communicates nothing; backward all-reduces the input's gradient.
///
///            w, cut by rows           rank 0 has y[..., :o0]
///   x  ->   [ rank 0 | rank 1 ]  ->   rank 1 has y[..., o0:]
///
/// It neither gathers nor scatters, so a ShardedToAllLinear can follow directly.
/// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
class AllToShardedLinearImpl : public torch::nn::Module {
 public:
  /// `inner` holds this rank's rows of the whole weight (and of its bias).
  AllToShardedLinearImpl(std::shared_ptr<LinearLike> inner, dist::Group group);

  /// x: [..., in], whole. Returns [..., this rank's out]. Collective in backward.
  at::Tensor forward(const at::Tensor& x);
  /// The same for an x that went through ops::mp_copy already: layers that share an input share one
  /// backward all-reduce that way.
  at::Tensor forward_shared(const at::Tensor& x) { return inner_->forward(x); }

  const std::shared_ptr<LinearLike>& inner() const { return inner_; }
  const dist::Group& group() const { return group_; }

 private:
  std::shared_ptr<LinearLike> inner_;
  dist::Group group_;
};
TORCH_MODULE(AllToShardedLinear);

/// Row parallel: the input is this rank's shard of the input features, the output is whole and
/// equal on all ranks. Forward all-reduces the partial outputs, then adds the bias once. Source:
/// Shoeybi et al. 2019, arXiv:1909.08053, section 3.
class ShardedToAllLinearImpl : public torch::nn::Module {
 public:
  /// `inner` holds this rank's columns of the whole weight and no bias (ShapeError otherwise: it
  /// would be added once per rank); `bias` is whole, or undefined.
  ShardedToAllLinearImpl(std::shared_ptr<LinearLike> inner, dist::Group group, at::Tensor bias = {},
                         bool requires_grad = false);

  /// x: [..., this rank's in]. Returns [..., out]. Collective.
  at::Tensor forward(const at::Tensor& x);

  const std::shared_ptr<LinearLike>& inner() const { return inner_; }
  const dist::Group& group() const { return group_; }

  at::Tensor bias;

 private:
  std::shared_ptr<LinearLike> inner_;
  dist::Group group_;
};
TORCH_MODULE(ShardedToAllLinear);

}  // namespace weft::nn
