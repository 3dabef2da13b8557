#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/dist/mesh.h"
#include "weft/nn/parallel/shard_inplace.h"
#include "weft/train/exact/sequence_order.h"
#include "weft/train/psdp/buffer_pool.h"
#include "weft/train/psdp/mesh_groups.h"
#include "weft/train/psdp/sharded_unit.h"
#include "weft/train/psdp/storage_watch.h"
#include "weft/train/psdp/unit_agreement.h"

namespace weft::train {

/// How a module's parameters are kept.
struct ShardOptions {
  /// What parameters are used in, gathered and kept in; masters are float32 in any case.
  at::ScalarType dtype = at::kFloat;
  /// Give a unit's memory back after its forward and gather it again in backward: 1/data of the
  /// memory for half as many bytes again. The units around (embedding, head) stay.
  bool release_after_forward = true;
  /// Begin to gather the next unit while one is used: hides the wire for one more unit's memory.
  bool prefetch = true;
  /// What nn::shard_inplace returned for parts of the module, by path.
  nn::InplaceShards inplace = {};
  /// The values that a parameter begins with, by name, in place of its own: asked for one by one,
  /// so that a module whose memory was never written to need not fit into memory.
  std::function<at::Tensor(const std::string& name)> values = {};
  /// Parameters, by name, whose gradients are this rank's part of a sum over the model axis.
  std::vector<std::string> partial_gradients = {};
  /// Also cuts over data what the module never changes (frozen_tensors), which is then gathered as
  /// parameters are: it takes 1/data of the memory, and its bytes go over the wire.
  bool shard_frozen = false;
  /// Sequences of a step over all ranks, if gradients are to have the same bits however many ranks
  /// share them: each backward is then of the next group of sequence_plan, whose gradients come
  /// added by the group's order, and groups are added by the rest of the tree. A rank keeps whole
  /// sums of gradients meanwhile, and ranks exchange them once a step. 0: as is fastest.
  int64_t exact_sequences = 0;
  /// The most sequences of a group.
  int64_t exact_together = 1;
};

/// A module whose parameters, gradients and optimizer state are cut over a mesh as kMappings says.
/// The module's own code stays as it is: a unit's parameters are gathered just before an operation
/// first uses one of them, and released when the next unit's turn comes; gradients are
/// reduce-scattered over data into the replica's own sums as soon as a unit's backward is over,
/// and cross replicas once per step, when finish_gradients is called after the last microbatch.
///
///     auto sharded = shard_module(model, mesh, model->blocks());
///     for (microbatch) sharded->backward(loss(model, microbatch));   // loss / tokens of the step
///     sharded->finish_gradients();
///     optimizer.step(rate, clip / sharded->gradient_norm());         // on owned_parts()
///     sharded->publish();
///
/// Every rank of the mesh calls every method, those of a pipeline's stage with forwards and
/// backwards in the same order; several forwards may go before their backwards. Data ranks may use
/// different units, in any order and number (experts that only some sequences reach, early exits):
/// before each they agree on what is gathered and summed, and a rank that is ahead serves the
/// others in backward(), finish_gradients(), publish() and release(). After forwards without a
/// backward, e.g. of an evaluation, call release() before any other collective. Where the mesh has
/// a pipe axis, `module` is a stage and a name stands for one parameter of the whole model: one
/// that several stages hold (a tied embedding) gets the sum of their gradients on all of them and
/// is counted once. Source: Rajbhandari et al. 2019 (arXiv:1910.02054); Zhang et al. 2022
/// (arXiv:2205.00119) for the sums within a replica.
class ShardedModule {
 public:
  /// Prefer shard_module.
  ShardedModule(torch::nn::Module& module, const dist::Mesh& mesh,
                const std::vector<std::shared_ptr<torch::nn::Module>>& units,
                const ShardOptions& options);

  /// Runs backward from `loss`, a scalar: this rank's part of the step's, so that the sum over
  /// ranks and microbatches is the step's loss. Or from a stage's output with its `gradient`, which
  /// the next stage gave. Adds the gradients to the replica's sums.
  void backward(const at::Tensor& loss, const at::Tensor& gradient = {});
  /// After the last microbatch: makes the step's gradients from those of all replicas.
  void finish_gradients();
  /// Their norm over the whole model, the same on every rank, bit for bit; with exact_sequences on
  /// every mesh. After finish_gradients.
  double gradient_norm() const;
  /// Puts the masters, which an optimizer has updated, into the parameters, and forgets the
  /// gradients.
  void publish();
  /// Releases whatever is gathered, e.g. after an evaluation.
  void release();

  /// What this rank updates, unit by unit. Valid as long as this is.
  std::vector<OwnedPart> owned_parts() const;
  const std::vector<std::unique_ptr<ShardedUnit>>& units() const { return units_; }
  const MeshGroups& groups() const { return groups_; }
  /// With ShardOptions::exact_sequences the groups of this rank's sequences; none without.
  const std::vector<SequenceGroup>& exact_groups() const { return exact_groups_; }
  /// Most bytes of gathered parameters at a time.
  size_t peak_gathered_bytes() const { return pool_.peak_bytes(); }

 private:
  struct Found;

  std::vector<Found> find_units(torch::nn::Module& module,
                                const std::vector<std::shared_ptr<torch::nn::Module>>& units,
                                const ShardOptions& options) const;
  void check_same_on_all_ranks(const std::vector<Found>& found, const ShardOptions& options) const;
  void watch(size_t unit);
  void take_out_shared(std::vector<Found>& found) const;
  void before_use(size_t unit) noexcept;
  void use(std::optional<size_t> unit);
  std::optional<size_t> leave_current();
  std::optional<size_t> likely_after(std::optional<size_t> unit) const;
  void gather_for_all(const UnitRound& round, std::optional<size_t> own);
  void end_together(UnitRequest::Kind kind);
  void release_all();
  void add_remaining_gradients();
  void add_late_gradients();
  void rethrow_error();

  MeshGroups groups_;
  std::vector<SequenceGroup> exact_groups_;
  bool release_after_forward_;
  bool prefetches_;
  BufferPool pool_;
  std::vector<std::unique_ptr<ShardedUnit>> units_;
  std::vector<bool> stays_gathered_;
  std::vector<std::unique_ptr<StorageWatch>> watches_;
  std::optional<size_t> current_;
  bool in_backward_ = false;
  // Units whose gradients of this backward were added.
  std::vector<bool> is_added_;
  std::exception_ptr error_;
};

/// Cuts `module`'s trainable parameters over `mesh`, whose axes are some of kAxes: one unit for
/// each of `units`, modules within it in the order of their use, and one for what is left.
/// Parameters hold equal values on all ranks of replica and data. Collective over the mesh's world.
/// `module` and what it consists of must not be rebuilt afterwards. Throws ConfigError for a module
/// without trainable parameters, a unit that is not part of the module, and units that share
/// parameters.
std::unique_ptr<ShardedModule> shard_module(
    torch::nn::Module& module, const dist::Mesh& mesh,
    const std::vector<std::shared_ptr<torch::nn::Module>>& units, const ShardOptions& options = {});

}  // namespace weft::train
