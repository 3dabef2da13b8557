#pragma once

#include <functional>

#include "weft/serve/engine/scheduler.h"
#include "weft/serve/engine/step_runner.h"

namespace weft::serve {

/// What a step counts as having taken, by its plan and what a clock says of it.
using StepClock = std::function<StepTimes(const StepPlan&, const StepTimes&)>;

/// Runs steps until a plan ends. `scheduler` is rank 0's; null on the others. `before_step` is
/// called on rank 0 alone before each plan is made, at least once a second. `clock` decides how
/// long steps count as, for plans that do not depend on the machine's speed; null: as long as they
/// take. Collective. Throws CommError when a rank is lost.
void run_steps(StepRunner& runner, Scheduler* scheduler, const SchedulerOptions& options,
               const std::function<void()>& before_step, const StepClock& clock = nullptr);

}  // namespace weft::serve
