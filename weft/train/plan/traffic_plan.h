#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/train/plan/plan_job.h"

namespace weft::train {

/// Calls of one collective on one axis in a step, as a rank makes them.
struct CollectivePlan {
  /// "data", "replica", "model" or "pipe"; "all" for all ranks of the mesh.
  std::string axis;
  /// "all_gather", "reduce_scatter", "all_reduce", "broadcast" or "send".
  std::string operation;
  int64_t calls = 0;
  /// Of the whole tensors over all calls, as dist::Traffic counts them: what a gather gives, what
  /// is reduced or scattered. What a rank puts on the wire is less: bytes_on_wire.
  int64_t bytes = 0;
};

/// The collectives of a step of the rank at a place of the pipe and model axes, without those of a
/// few bytes (norm, token count, flags). An axis of one rank has none.
///
/// Over data, exact: a gather of each block per microbatch and direction, but the last block's
/// once where its backward follows its forward, which it does unless a pipeline fills or drains; of
/// what is around the blocks once per step; a reduce-scatter of every unit in float32 per
/// microbatch. Over replica, exact: one reduce-scatter
/// (float32) and one gather of every unit's share per step, whatever the microbatches. Over model:
/// all-reduces of a microbatch's activations, two per block and direction, one for the embedding,
/// one for the head's input, two of float32 per token for the loss, two per block and direction for
/// norms over all heads. With sequence parallelism,
/// instead of the activations' all-reduces: a gather before and a reduce-scatter after each half of
/// a block, and a gather more in backward, of inputs that a rank keeps its rows of alone; and once
/// per step an all-reduce of what norms have summed. Over pipe, exact: activations and their
/// gradients, once per microbatch, and, once per step, float32 gradients of what a rank owns of a
/// tied embedding.
///
/// Over all ranks, for Muon, exact: an all-reduce and a broadcast of each of the blocks' matrices.
std::vector<CollectivePlan> traffic_plan(const PlanJob& job, int64_t stage, int64_t model_rank);

/// What a rank sends over its link for a collective of `bytes` in a ring of `ranks`: (n-1)/n of
/// them for a gather or reduce-scatter, twice that for an all-reduce, all for a send or broadcast.
double bytes_on_wire(const CollectivePlan& plan, int64_t ranks);

/// Ranks on an axis of a mesh, by its name; of "all" all.
int64_t axis_size(const MeshSection& mesh, const std::string& axis);

}  // namespace weft::train
