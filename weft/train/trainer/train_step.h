#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/models/model.h"
#include "weft/train/optimizer/optimizer.h"
#include "weft/train/psdp/sharded_module.h"

namespace weft::train {

/// Sequences that a rank computes at once, equal on all ranks of the model axis.
struct Microbatch {
  models::TokenBatch tokens;
  /// int64 [B, T]; -100: takes no part in the loss.
  at::Tensor targets_BT;
  /// Targets that take part.
  int64_t num_targets = 0;
};

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

/// Forward and backward of this rank's microbatches. The loss is the sum over all targets of the
/// step divided by their number, whoever holds them: any mesh and any number of microbatches give
/// the same gradient. A step without targets has loss 0 and gradients 0. Then the gradients are
/// finished. Collective over the mesh; all ranks have as many microbatches. Throws ConfigError on
/// all ranks if the loss or a gradient is not finite, naming `step` and the first such rank; the
/// parameters are then as before.
StepResult compute_gradients(ShardedModule& sharded, const LossSum& loss_sum,
                             const std::vector<Microbatch>& microbatches, int64_t step);

/// What gradients are multiplied by so that their norm is at most `limit`; 0: no limit.
double clip_scale(double gradient_norm, double limit);

}  // namespace weft::train
