#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/models/model.h"
#include "weft/train/optimizer/optimizer.h"
#include "weft/train/pipeline/pipeline.h"
#include "weft/train/psdp/sharded_module.h"

namespace weft::train {

/// The sum of the losses of a microbatch's targets, a scalar with a gradient, equal on all ranks of
/// the model axis.
using LossSum = std::function<at::Tensor(const Microbatch& microbatch)>;

/// The usual one.
LossSum language_model_loss(models::CausalLM& model);

/// What a step came to, the same on every rank.
struct StepResult {
  /// Mean over all targets of the step.
  double loss = 0;
  int64_t num_targets = 0;
  /// Before clipping.
  double gradient_norm = 0;
};

/// Adds up over the ranks of replica and data what each has of a step. Collective over them.
int64_t count_targets(const std::vector<Microbatch>& microbatches, const dist::Group& batch);

/// Forward and backward of this rank's microbatches, through all stages of the pipe axis. The loss
/// is the sum over all targets of the step divided by their number, whoever holds them: any mesh
/// and any number of microbatches give the same gradient. A step without targets has loss 0 and
/// gradients 0. Then the gradients are finished. Collective over the mesh; all ranks have as many
/// microbatches. Throws ConfigError on all ranks if the loss or a gradient is not finite, naming
/// `step` and the first such rank; the parameters are then as before.
StepResult compute_gradients(ShardedModule& sharded, const StageModel& model,
                             const std::vector<Microbatch>& microbatches, int64_t step);
/// The same of a module that is one stage.
StepResult compute_gradients(ShardedModule& sharded, const LossSum& loss_sum,
                             const std::vector<Microbatch>& microbatches, int64_t step);

/// What gradients are multiplied by so that their norm is at most `limit`; 0: no limit.
double clip_scale(double gradient_norm, double limit);

}  // namespace weft::train
