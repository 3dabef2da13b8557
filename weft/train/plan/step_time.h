#pragma once

#include <string>

#include "weft/train/plan/hardware.h"
#include "weft/train/plan/plan_job.h"

namespace weft::train {

/// Seconds of a step by what they go to, on the slowest stage.
struct StepTime {
  /// Forward and backward, and what checkpointing computes again.
  double compute = 0;
  /// Collectives over the model axis: layers wait for them.
  double model = 0;
  /// Gathers and reduce-scatters over data: run beside the computation, so that the longer counts.
  double data = 0;
  /// Once per step, nothing beside it.
  double replica = 0;
  /// Sends between stages.
  double pipe = 0;
  /// Stages wait for the first and the last microbatch: (pipe - 1) / microbatches of the rest.
  double bubble = 0;
  /// Masters, gradients and moments through memory; Muon's matrices over the ranks and multiplied.
  double optimizer = 0;

  double total() const;
  /// The largest part: "compute", "data", …
  std::string bound() const;
};

/// Computation at the stated efficiency of the hardware's peak; collectives as rings at the stated
/// efficiency of the slowest link on their axis (model is the fastest axis, replica the slowest,
/// and hosts hold consecutive ranks), where a ring between hosts uses the network adapters of all
/// ranks that it has on a host; latency is left out.
StepTime step_time(const PlanJob& job, const Hardware& hardware);

/// Floating-point operations of a step over all ranks, by flops_per_token: what MFU counts.
double step_flops(const PlanJob& job);

}  // namespace weft::train
