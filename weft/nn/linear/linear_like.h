#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "weft/dist/group.h"
#include "weft/nn/layers/cloned.h"
#include "weft/shard/layout.h"

namespace weft::nn {

/// The two ways to cut a linear layer over a group, named by what comes in and goes out.
enum class ShardKind {
  /// By output features (rows of w): column parallel.
  kAllToSharded,
  /// By input features (columns of w): row parallel.
  kShardedToAll,
};

/// By MLX's names, "all-to-sharded" and "sharded-to-all". Throws ConfigError for others.
ShardKind shard_kind_of(std::string_view name);

/// What was cut and over whom. The layout's dim is 0 for kAllToSharded and 1 for kShardedToAll, its
/// size the whole's features along it.
struct LinearCut {
  ShardKind kind = ShardKind::kAllToSharded;
  shard::Layout layout;
  dist::Group group;
};

/// Any layer that maps [..., in] to [..., out], on this rank alone or with others.
class AnyLinear : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  /// The whole's features, also where the layer is cut.
  virtual int64_t in_features() const = 0;
  virtual int64_t out_features() const = 0;
  /// Puts others in the place of the layer's parameters and of the modules that it holds, not of
  /// buffers. A kind that has either says so here.
  virtual void exchange_members(const MemberExchange&) {}
};

/// What every inner linear layer is: y = x w^T + bias on this rank alone, with w [out, in].
/// Parallel layers hold one and add only the communication, so a new quantization or adapter is one
/// more subclass and needs no new parallel layer.
class LinearLike : public AnyLinear {
 public:
  /// x: [..., in]. Returns [..., out] in x's dtype. Throws ShapeError for another last dim.
  at::Tensor forward(const at::Tensor& x) override = 0;
  /// Rows of w by `indices` (int64, any shape), for embeddings: [..., in], floating.
  virtual at::Tensor rows(const at::Tensor& indices) = 0;
  /// Bytes of the weight as it is held, scales and offsets included, without the bias.
  virtual int64_t weight_bytes() const = 0;
  /// The bias [out] itself, or an undefined tensor.
  virtual at::Tensor bias_or_undefined() const = 0;
  bool has_bias() const { return bias_or_undefined().defined(); }
  /// w [out, in] as numbers without a gradient; may share memory with the parameter.
  virtual at::Tensor dense_weight() const = 0;
  /// Throws FormatError for tensors of other shapes or dtypes and for a layer that was saved cut.
  void load(torch::serialize::InputArchive& archive) override;
};

/// An inner linear that can be cut over a group and put together again. What only computes, such as
/// a weight in the order of one machine's kernels, is a LinearLike alone.
class ShardableLinear : public LinearLike {
 public:
  /// A run of input features that should not be cut when n ranks share them: the quant group, or
  /// what it must be divided into so that every rank gets some.
  virtual int64_t column_unit(int64_t n) const = 0;
  /// This rank's shard, with memory of its own, so that the whole can be released. A kShardedToAll
  /// shard has no bias: the parallel layer adds it once. Not collective. Throws ShapeError where
  /// the cut is not lossless.
  virtual std::shared_ptr<LinearLike> shard(const LinearCut& cut) const = 0;
  /// The whole of which this is the shard, on every rank. `bias` is the parallel layer's for
  /// kShardedToAll. Collective over the cut's group.
  virtual std::shared_ptr<LinearLike> unshard(const LinearCut& cut,
                                              const at::Tensor& bias) const = 0;
};

/// The parameter or buffer "weight" of a layer. Throws ConfigError if it keeps none of that name.
at::Tensor held_weight(const LinearLike& linear);

/// A module that holds an inner linear which may be exchanged: what quantize and apply_lora look
/// for.
class LinearHolder {
 public:
  LinearHolder() = default;
  LinearHolder(const LinearHolder&) = default;
  LinearHolder& operator=(const LinearHolder&) = default;
  virtual ~LinearHolder() = default;

  /// Null if what it holds is itself a holder.
  virtual std::shared_ptr<LinearLike> inner() const = 0;
  /// Exchanges it for one of the same sizes; throws ShapeError otherwise.
  virtual void set_inner(std::shared_ptr<LinearLike> inner) = 0;
  /// How the inner was cut; null if it is whole.
  virtual const LinearCut* cut() const = 0;
  /// The same for an adapter of it, whose gradients are summed over the cut's ranks: null as well
  /// where no other rank has this layer.
  virtual const LinearCut* adapter_cut() const { return cut(); }
};

}  // namespace weft::nn
