#pragma once

#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <string>
#include <string_view>

#include "weft/nn/linear/linear_like.h"
#include "weft/nn/parallel/shard_linear.h"

namespace weft::nn {

/// The place of one linear layer in your own model. The layer in it may be replaced while
/// the member and its callers stay: first a torch::nn::Linear's weight, then its quantized form,
/// a LoRA adapter around either, and any of them cut over a group.
class LinearImpl : public Cloned<LinearImpl, AnyLinear>, public LinearHolder {
 public:
  /// A new dense layer, as torch::nn::Linear(in, out) begins.
  LinearImpl(int64_t in_features, int64_t out_features, bool bias = true);
  /// Takes over the linear's own parameters: shared, not copied.
  LinearImpl(const torch::nn::Linear& linear);
  /// Any layer; a parallel one stands here as sharded.
  explicit LinearImpl(std::shared_ptr<AnyLinear> layer);

  /// x: [..., in] (this rank's in, if sharded to all). Collective if sharded.
  at::Tensor forward(const at::Tensor& x) override { return layer_->forward(x); }
  int64_t in_features() const override { return layer_->in_features(); }
  int64_t out_features() const override { return layer_->out_features(); }

  /// Cuts the layer over `group` and lets the whole go. Parameters stay the tensors that they were,
  /// with this rank's part as their numbers and no gradient, so that an optimizer that was made
  /// before goes on with them, as long as it has no state of the whole's shape. Collective, with
  /// equal wholes. Throws as shard_linear does, and ConfigError if it is sharded already.
  void shard(ShardKind kind, const dist::Group& group, const ShardOptions& options = {});
  /// By heads, or any other layout that you give.
  void shard(ShardKind kind, const dist::Group& group, const shard::Layout& layout);
  /// Puts the whole back on every rank, again into the same tensors; nothing if it is whole.
  /// Collective.
  void unshard();

  /// What stands here keeps of its weight on this rank: the parameter itself, or a quantized
  /// weight's packed integers.
  at::Tensor weight() const;
  const std::shared_ptr<AnyLinear>& layer() const { return layer_; }
  std::shared_ptr<LinearLike> inner() const override;
  void set_inner(std::shared_ptr<LinearLike> inner) override;
  const LinearCut* cut() const override { return nullptr; }
  void exchange_members(const MemberExchange& exchange) override;

 private:
  std::shared_ptr<LinearLike> whole_or_throw() const;
  void stand_in(std::shared_ptr<AnyLinear> layer);

  std::shared_ptr<AnyLinear> layer_;
};
TORCH_MODULE(Linear);

/// Cuts the layer in `linear` over `group` and returns the same place, which stays registered
/// where it is: `wq = shard_linear(wq, "all-to-sharded", group)`. Throws as LinearImpl::shard and
/// shard_kind_of do. Collective, with equal wholes.
Linear shard_linear(Linear linear, std::string_view sharding,
                    const dist::Group& group = dist::model_group(),
                    const ShardOptions& options = {});
/// The same for a layer of libtorch's, whose parameters are taken over in a new place: those
/// tensors become this rank's part, so `linear` is no whole layer afterwards. A torch::nn::Linear
/// cannot hold the result, because its forward is not virtual; the compiler refuses that.
Linear shard_linear(const torch::nn::Linear& linear, std::string_view sharding,
                    const dist::Group& group = dist::model_group(),
                    const ShardOptions& options = {});

}  // namespace weft::nn
