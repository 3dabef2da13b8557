#pragma once

#include <cstdint>
#include <vector>

#include "weft/train/pipeline/pipeline.h"
#include "weft/train/psdp/sharded_module.h"

namespace weft::train {

/// A step's losses by sequence, of which every rank has some.
struct StepLosses {
  /// Of this rank's sequences.
  double own = 0;
  /// Of all, added in the order of the sequences.
  double total = 0;
};

/// Forward and backward of this rank's part of a step in groups of sequences
/// (ShardedModule::exact_groups), for a model that gives each sequence's loss
/// (models::TrainsExactly). Gradients are those of the sum of all losses. Collective over the mesh.
StepLosses run_exact_step(ShardedModule& sharded, const StageModel& model,
                          const std::vector<Microbatch>& microbatches);

/// Divides the finished gradients. Not collective.
void divide_gradients(ShardedModule& sharded, double divisor);

/// Forward alone of an evaluation, whose microbatches of at most `microbatch` sequences the data
/// ranks take in turns: the sum of all losses, in the order of the sequences. Releases the module.
/// Collective over the mesh.
double evaluate_exactly(ShardedModule& sharded, const StageModel& model,
                        const std::vector<Microbatch>& microbatches, int64_t microbatch);

}  // namespace weft::train
