#include "weft/serve/engine/run_steps.h"

#include "weft/serve/engine/share_plan.h"

namespace weft::serve {
namespace {

// Without work ranks still meet as often, so that one that is lost is noticed.
constexpr std::chrono::milliseconds kMeeting{200};

}  // namespace

void run_steps(StepRunner& runner, Scheduler* scheduler, const SchedulerOptions& options,
               const std::function<void()>& before_step, const StepClock& clock) {
  while (true) {
    StepPlan plan;
    if (scheduler != nullptr) {
      before_step();
      plan = scheduler->next_plan(kMeeting);
    }
    plan = share_plan(runner.group(), plan, options.slots, options.step_tokens);
    if (plan.ends) return;
    if (plan.is_empty()) continue;
    const std::vector<PartScores> scores = runner.run(plan);
    if (scheduler == nullptr) continue;
    scheduler->take(plan, scores, clock ? clock(plan, runner.times()) : runner.times());
  }
}

}  // namespace weft::serve
