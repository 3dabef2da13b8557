#pragma once

#include <cstdint>

#include "weft/train/plan/plan_job.h"

namespace weft::train {

/// Bytes that one rank needs at the same time in a training step.
struct MemoryPlan {
  /// Shares of the parameters, in the dtype that is computed in. Exact.
  int64_t parameters = 0;
  /// Float32 masters of what the rank owns; none where the shares are float32 themselves. Exact.
  int64_t masters = 0;
  /// The replica's float32 sums and, with several replicas, the reduced ones; with train.exact
  /// these alone. Exact.
  int64_t gradients = 0;
  /// Moments. Exact, without alignment; for adafactor at most so many, for muon those of the rank
  /// that has the most.
  int64_t optimizer = 0;
  /// Gathered parameters at the same time: those around the blocks, of the block in use and of the
  /// one that is fetched beside it (of all without release_after_forward). Exact.
  int64_t gathered = 0;
  /// Gradients between backward and the sums: those around the blocks, of one block, and the
  /// float32 run that is reduced. With train.exact whole ones, as many as wait for each other, and
  /// what data ranks exchange of a unit.
  int64_t gradient_work = 0;
  /// What forward keeps for backward; an estimate, see memory_plan.
  int64_t activations = 0;
  /// What the model axis exchanges with train.exact; an estimate.
  int64_t ordered_sums = 0;

  int64_t total() const {
    return parameters + masters + gradients + optimizer + gathered + gradient_work + activations +
           ordered_sums;
  }
};

/// The memory of the rank at a place of the pipe and model axes; all ranks of replica and data need
/// the same. What is exact is what train::ShardedUnit allocates (lengths of FlatLayout).
///
/// Activations per token of a block, in elements: 4 D (inputs and outputs of two norms),
/// 2 q + 2 k (queries, attention's output, keys, values), 3 F (gate, up, their product), and 4
/// bytes per head for attention's log-sum-exp; scores are never kept. D is cut over the model axis
/// with sequence parallelism, the others always. With checkpointing D per block and one block in
/// full. What is gathered of cut rows for one product is not kept and not counted. The method of
/// Korthikanti et al. 2022 (arXiv:2205.05198), for these layers. Stage s of a pipeline keeps at
/// most pipe - s microbatches (stage_schedule), and of each its output.
MemoryPlan memory_plan(const PlanJob& job, int64_t stage, int64_t model_rank);

/// That of the rank that needs the most.
MemoryPlan largest_memory_plan(const PlanJob& job);

}  // namespace weft::train
