#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/dist/group.h"
#include "weft/models/model.h"
#include "weft/train/psdp/sharded_module.h"

namespace weft::train {

/// Sequences that a rank computes at once, equal on all ranks of the pipe and model axes.
struct Microbatch {
  models::TokenBatch tokens;
  /// int64 [B, T]; -100: takes no part in the loss.
  at::Tensor targets_BT;
  /// Targets that take part.
  int64_t num_targets = 0;
};

/// A stage of a model, or a model that is one stage, as a step runs it.
struct StageModel {
  /// What the stage makes of a microbatch and of x, which the stage before made of it (undefined on
  /// the first): what the next one takes; on the last stage the sum of the losses of the
  /// microbatch's targets, a scalar, equal on all ranks of the model axis.
  std::function<at::Tensor(const Microbatch& microbatch, const at::Tensor& x)> forward;
  /// A tensor without values like that x, known from the microbatch alone. Not used on the first.
  std::function<at::Tensor(const Microbatch& microbatch)> make_input = {};
};

/// That of a language model or of the stage of it that `model` is, which outlives it. `pipe` is the
/// group of the stages.
StageModel language_model_stage(models::CausalLM& model, const dist::Group& pipe);

/// Forward and backward of a step's microbatches through the stages of sharded.groups().pipe, in
/// the order of stage_schedule: activations are sent on, their gradients back, and what a
/// microbatch keeps is dropped as soon as its backward is over. Losses are divided by `divisor`.
/// Returns the sum of this rank's, 0 on all but the last stage. Collective over the mesh; the
/// stages of a pipeline have the same microbatches.
double run_pipeline(ShardedModule& sharded, const StageModel& model,
                    const std::vector<Microbatch>& microbatches, double divisor);

/// Forward alone, without gradients: this rank's sum of losses, 0 on all but the last stage.
/// Collective over `pipe` as run_pipeline.
double evaluate_pipeline(const StageModel& model, const std::vector<Microbatch>& microbatches,
                         const dist::Group& pipe);

}  // namespace weft::train
