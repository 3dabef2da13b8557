#pragma once

#include <cstdint>

#include "weft/train/config/train_config.h"
#include "weft/train/plan/model_sizes.h"

namespace weft::train {

/// Everything that memory, traffic and time of a step follow from.
struct PlanJob {
  ModelSizes model;
  MeshSection mesh;
  /// Of a step, over all ranks.
  int64_t sequences = 1;
  /// Sequences that a data rank computes at once.
  int64_t microbatch = 1;
  int64_t sequence_length = 1;
  /// Bytes of an element of the type that is computed in.
  int64_t dtype_bytes = 4;
  /// As in [optimizer].
  OptimizerSection optimizer;
  bool checkpoint_activations = false;
  bool sequence_parallel = false;
  bool exact = false;
  /// As in ShardOptions.
  bool release_after_forward = true;
  bool prefetch = true;

  /// Per data rank and step.
  int64_t num_microbatches() const { return sequences / (mesh.num_data_ranks() * microbatch); }
  /// Of a microbatch.
  int64_t num_tokens() const { return microbatch * sequence_length; }
  ModelPlace place(int64_t stage, int64_t model_rank) const {
    return {mesh.tp, model_rank, mesh.pipe, stage, sequence_parallel, mesh.pipe_layers};
  }
};

/// The job of a configuration that check_config has passed, on its own mesh.
PlanJob plan_job(const TrainConfig& config, const ModelSizes& model);

}  // namespace weft::train
