#pragma once

#include <torch/nn/pimpl.h>

#include <memory>
#include <utility>

#include "weft/dist/group.h"
#include "weft/dist/ordered_sum.h"
#include "weft/dist/parallelism.h"
#include "weft/nn/linear/fused_linear.h"
#include "weft/nn/linear/linear_like.h"

namespace weft::nn {

/// This rank's part of a layer that begins now, how it is cut, and the whole bias of a
/// kShardedToAll layer (undefined: none).
struct NewParallelLinear {
  std::shared_ptr<LinearLike> inner;
  LinearCut cut;
  at::Tensor row_bias;
};

/// What the two parallel layers share: an inner linear, and how it was cut.
class ParallelLinearImpl : public AnyLinear, public LinearHolder {
 public:
  int64_t in_features() const override;
  int64_t out_features() const override;
  std::shared_ptr<LinearLike> inner() const override { return inner_; }
  void set_inner(std::shared_ptr<LinearLike> inner) override;
  const LinearCut* cut() const override { return &cut_; }
  void exchange_members(const MemberExchange& exchange) override;
  /// torch::save keeps which part of the whole this rank holds; torch::load throws FormatError for
  /// a file of another rank, of another cut, or of a whole layer.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;
  const dist::Group& group() const { return cut_.group; }
  const shard::Layout& layout() const { return cut_.layout; }

  /// This rank's part of the weight: the parameter itself, or a quantized weight's packed integers.
  /// Throws ConfigError if the inner linear keeps no tensor of that name.
  at::Tensor weight() const;
  /// The whole layer, bias included, on every rank. Throws ConfigError on all ranks if the inner
  /// linear can't be joined. Collective.
  virtual std::shared_ptr<LinearLike> unshard() const = 0;
  /// The whole's weight [out, in] and bias [out] (undefined without one) as numbers, on every rank,
  /// never kept. Collective.
  at::Tensor master_weight() const { return unshard()->dense_weight(); }
  at::Tensor master_bias() const { return unshard()->bias_or_undefined(); }

 protected:
  ParallelLinearImpl(std::shared_ptr<LinearLike> inner, LinearCut cut);
  /// What was given instead of a layout: shards that lie end to end in rank order.
  static LinearCut contiguous_cut(const LinearLike& inner, ShardKind kind,
                                  const dist::Group& group);

  std::shared_ptr<LinearLike> inner_;
  LinearCut cut_;
};

/// Column parallel: the input is whole and equal on all ranks, the output is this rank's shard of
/// the output features. Forward communicates nothing; backward all-reduces the input's gradient.
///
///            w, cut by rows           rank 0 has y[..., :o0]
///   x  ->   [ rank 0 | rank 1 ]  ->   rank 1 has y[..., o0:]
///
/// It neither gathers nor scatters, so a ShardedToAllLinear can follow directly. Layers that share
/// an input share one backward all-reduce if that input went through ops::mp_copy before.
/// Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
class AllToShardedLinearImpl : public Cloned<AllToShardedLinearImpl, ParallelLinearImpl> {
 public:
  /// A new layer of the whole's sizes. Weight and bias begin uniform within 1/sqrt(in_features),
  /// the same whole on any number of ranks, of which this rank keeps its rows. Throws ConfigError
  /// if a rank would hold none. Collective.
  AllToShardedLinearImpl(int64_t in_features, int64_t out_features, bool bias = true,
                         const dist::Group& group = dist::model_group());
  /// `inner` holds this rank's rows of the whole weight (and of its bias), as `layout` (dim 0)
  /// says.
  AllToShardedLinearImpl(std::shared_ptr<LinearLike> inner, dist::Group group,
                         shard::Layout layout);
  /// The ranks' rows lie end to end in rank order. Collective: their numbers are exchanged.
  AllToShardedLinearImpl(std::shared_ptr<LinearLike> inner, const dist::Group& group);

  /// x: [..., in], whole. Returns [..., this rank's out]. Collective in backward.
  at::Tensor forward(const at::Tensor& x) override;
  std::shared_ptr<LinearLike> unshard() const override;

 protected:
  explicit AllToShardedLinearImpl(NewParallelLinear made);
};
TORCH_MODULE(AllToShardedLinear);

/// Row parallel: the input is this rank's shard of the input features, the output is whole and
/// equal on all ranks. Forward all-reduces the partial outputs, then adds the bias once. Source:
/// Shoeybi et al. 2019, arXiv:1909.08053, section 3.
class ShardedToAllLinearImpl : public Cloned<ShardedToAllLinearImpl, ParallelLinearImpl> {
 public:
  /// A new layer of the whole's sizes. Weight and bias begin uniform within 1/sqrt(in_features),
  /// the same whole on any number of ranks, of which this rank keeps its columns and all of the
  /// bias. Throws ConfigError if a rank would hold none. Collective.
  ShardedToAllLinearImpl(int64_t in_features, int64_t out_features, bool bias = true,
                         const dist::Group& group = dist::model_group());
  /// `inner` holds this rank's columns of the whole weight, as `layout` (dim 1) says, and no bias
  /// (ShapeError otherwise: it would be added once per rank); `bias` is whole, or undefined.
  ShardedToAllLinearImpl(std::shared_ptr<LinearLike> inner, dist::Group group, shard::Layout layout,
                         at::Tensor bias = {}, bool requires_grad = false);
  /// The ranks' columns lie end to end in rank order. Collective: their numbers are exchanged.
  ShardedToAllLinearImpl(std::shared_ptr<LinearLike> inner, const dist::Group& group,
                         at::Tensor bias = {}, bool requires_grad = false);

  /// x: [..., this rank's in]. Returns [..., out]. Collective.
  at::Tensor forward(const at::Tensor& x) override { return forward_rows(x, {}); }
  /// As reduced_linear with `rows`: x has all rows, the result this rank's. The bias's gradient is
  /// then this rank's part of a sum (GradientKind::kPartial). Collective.
  at::Tensor forward_rows(const at::Tensor& x, const RowCounts& rows);
  /// From here on, outputs are summed in this order instead (nn::ordered_linear), of all rows;
  /// null: as is fastest. Not collective.
  void set_ordered(std::shared_ptr<dist::OrderedSum> ordered) { ordered_ = std::move(ordered); }
  dist::OrderedSum* ordered() const { return ordered_.get(); }
  std::shared_ptr<LinearLike> unshard() const override;
  void exchange_members(const MemberExchange& exchange) override;

  at::Tensor bias;

 protected:
  explicit ShardedToAllLinearImpl(NewParallelLinear made);

 private:
  std::shared_ptr<dist::OrderedSum> ordered_;
};
TORCH_MODULE(ShardedToAllLinear);

}  // namespace weft::nn
