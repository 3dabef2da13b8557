#pragma once

#include <functional>

#include "weft/serve/engine/scheduler.h"
#include "weft/serve/engine/step_runner.h"

namespace weft::serve {

/// Runs steps until a plan ends. `scheduler` is rank 0's; null on the others. `before_step` is
/// called on rank 0 alone before each plan is made, at least once a second. Collective. Throws
/// CommError when a rank is lost.
void run_steps(StepRunner& runner, Scheduler* scheduler, const SchedulerOptions& options,
               const std::function<void()>& before_step);

}  // namespace weft::serve
