#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/nn/parallel/parameter_info.h"
#include "weft/train/exact/gradient_tree.h"
#include "weft/train/flat_layout.h"
#include "weft/train/psdp/buffer_pool.h"
#include "weft/train/psdp/frozen_share.h"
#include "weft/train/psdp/mesh_groups.h"
#include "weft/train/slice.h"

namespace weft::train {

/// What a rank updates of one parameter: 1-d float32, views of its unit's memory.
struct OwnedPart {
  Slice slice;
  at::Tensor master;
  /// The whole step's gradient once gradients are finished.
  at::Tensor gradient;
};

struct ShardOptions;

/// Parameters that are gathered, used and released together, e.g. those of a transformer block.
/// Between uses a rank keeps its share of the flat run (FlatLayout): the parameters in the dtype
/// that they are used in, its replica's gradients in float32, and of what it owns the float32
/// masters. The module's own parameters become views of one run, which has memory only while it is
/// gathered. All methods but the accessors are collective over the group that they name.
class ShardedUnit {
 public:
  /// Takes over the parameters' values, which are equal on all ranks of replica and data and on all
  /// stages that hold them, the same for all of these parameters, and those of tensors that are
  /// used with them and frozen (of these alone there may be some). `pool` outlives this.
  ShardedUnit(std::string name, std::vector<nn::ParameterInfo> parameters, const MeshGroups& groups,
              const ShardOptions& options, BufferPool& pool,
              const std::vector<at::Tensor>& frozen = {});

  const std::string& name() const { return name_; }
  const FlatLayout& layout() const { return layout_; }
  bool is_gathered() const { return is_gathered_; }
  /// The run that the module's parameters are views of.
  const at::Tensor& run() const { return run_; }
  /// That of the frozen tensors; null without.
  const FrozenShare* frozen() const { return frozen_.get(); }

  /// Gives the parameters their values. Over data.
  void gather();
  /// Begins to, and returns: the next gather() waits for it. Over data.
  void begin_gather();
  /// The same where some ranks hold the values already and others lack them: all take part.
  void begin_gather_anew();
  /// Gives their memory back; nothing where this rank holds all of them anyway.
  void release();
  /// Memory without values, so that operations can continue after an error.
  void fill_without_values();

  /// True if some parameter has a gradient that was not added yet.
  bool has_new_gradients() const;
  /// Adds this rank's gradients of a microbatch to the replica's sums, and drops them. Over data.
  void add_gradients();
  /// Makes the gradients of the whole step from those of all replicas, on the parts that ranks own.
  /// Over replica, over model for gradients of GradientKind::kPartial, and over pipe for those of
  /// several stages. To be called once.
  void finish_gradients();
  /// Sum of the squares of the finished gradients, every element of the model counted by one rank.
  double counted_square_sum() const;
  /// What it is of: runs of the finished gradients.
  std::vector<std::span<const float>> counted_gradients() const;
  /// Puts the masters into the parameters. Over replica. The unit is released before.
  void publish();
  /// Forgets the gradients: the next step begins.
  void clear_gradients();

  /// What this rank owns, in the parameters' order.
  std::vector<OwnedPart> owned_parts() const;
  /// Bytes of parameters, of gradient sums, and of masters that are not the parameters themselves.
  uint64_t parameter_bytes() const { return share_.nbytes(); }
  uint64_t gradient_bytes() const { return gradient_.nbytes(); }
  uint64_t master_bytes() const;
  /// Bytes of frozen tensors that this rank holds between their uses.
  uint64_t frozen_bytes() const { return frozen_ == nullptr ? 0 : frozen_->num_bytes(); }

 private:
  void take_over_parameters(const ShardOptions& options);
  void place_parameters();
  void finish_gather();
  static at::Tensor take_gradient(nn::ParameterInfo& parameter);
  void add_to_tree();
  void add_to_share(const at::Tensor& run_gradient);
  void finish_tree();
  void sum_over(const std::vector<int64_t>& stages);
  Slice slice_of(const FlatLayout::Piece& piece) const;
  bool holds_all() const { return layout_.data() == 1; }

  std::string name_;
  std::vector<nn::ParameterInfo> parameters_;
  MeshGroups groups_;
  FlatLayout layout_;
  at::ScalarType dtype_;
  BufferPool& pool_;
  bool is_partial_;

  at::Tensor run_;
  at::Tensor share_;
  at::Tensor master_;
  at::Tensor gradient_;
  at::Tensor owned_gradient_;
  // Where in owned_gradient_ what this rank counts for the norm lies.
  std::vector<shard::Range> counted_;
  // Of ShardOptions::exact_sequences; null without.
  std::unique_ptr<GradientTree> tree_;
  std::unique_ptr<dist::PendingWork> pending_;
  std::unique_ptr<FrozenShare> frozen_;
  bool is_gathered_ = false;
  bool has_gradient_ = false;
};

}  // namespace weft::train
