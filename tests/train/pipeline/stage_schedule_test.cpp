#include "weft/train/pipeline/stage_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace weft::train {
namespace {

// "F0 F1 B0 …".
std::string tasks_text(const std::vector<StageTask>& tasks) {
  std::string text;
  for (const StageTask& task : tasks) {
    text += (text.empty() ? "" : " ") + std::string(task.is_forward ? "F" : "B") +
            std::to_string(task.microbatch);
  }
  return text;
}

TEST(StageSchedule, FillsAlternatesAndDrains) {
  EXPECT_EQ(tasks_text(stage_schedule(3, 0, 4)), "F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(tasks_text(stage_schedule(3, 1, 4)), "F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(tasks_text(stage_schedule(3, 2, 4)), "F0 B0 F1 B1 F2 B2 F3 B3");
}

TEST(StageSchedule, IsForwardAndBackwardByTurnsOnOneStage) {
  EXPECT_EQ(tasks_text(stage_schedule(1, 0, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(tasks_text(stage_schedule(1, 0, 0)), "");
}

TEST(StageSchedule, KeepsNoMoreMicrobatchesThanStagesAhead) {
  EXPECT_EQ(tasks_text(stage_schedule(4, 0, 2)), "F0 F1 B0 B1");
  for (int64_t stages = 1; stages <= 6; ++stages) {
    for (int64_t microbatches = 1; microbatches <= 9; ++microbatches) {
      for (int64_t stage = 0; stage < stages; ++stage) {
        int64_t kept = 0, most = 0;
        for (const StageTask& task : stage_schedule(stages, stage, microbatches)) {
          kept += task.is_forward ? 1 : -1;
          EXPECT_GE(kept, 0);
          most = std::max(most, kept);
        }
        EXPECT_EQ(kept, 0);
        EXPECT_EQ(most, std::min(microbatches, stages - stage));
      }
    }
  }
}

// All stages at once: a task waits for what its neighbours send, a message is taken in the order
// that it was sent in, and nobody waits for a message to be taken.
class Simulation {
 public:
  Simulation(int64_t stages, int64_t microbatches) {
    for (int64_t stage = 0; stage < stages; ++stage) {
      tasks_.push_back(stage_schedule(stages, stage, microbatches));
    }
    next_.resize(tasks_.size());
    forwards_.resize(tasks_.size());
    backwards_.resize(tasks_.size());
  }

  // Runs until nobody can go on. Returns whether all tasks are done.
  bool run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t stage = 0; stage < tasks_.size(); ++stage) moves = step(stage) || moves;
    }
    for (size_t stage = 0; stage < tasks_.size(); ++stage) {
      if (next_[stage] < tasks_[stage].size()) return false;
    }
    return true;
  }

 private:
  bool step(size_t stage) {
    if (next_[stage] == tasks_[stage].size()) return false;
    const StageTask& task = tasks_[stage][next_[stage]];
    if (!has_arrived(stage, task)) return false;
    // Each microbatch once, in order: it is the message that comes next.
    EXPECT_EQ(task.microbatch, (task.is_forward ? forwards_ : backwards_)[stage]++);
    ++next_[stage];
    return true;
  }

  bool has_arrived(size_t stage, const StageTask& task) const {
    if (task.is_forward) return stage == 0 || forwards_[stage - 1] > task.microbatch;
    const bool is_last = stage + 1 == tasks_.size();
    return forwards_[stage] > task.microbatch &&
           (is_last || backwards_[stage + 1] > task.microbatch);
  }

  std::vector<std::vector<StageTask>> tasks_;
  std::vector<size_t> next_;
  std::vector<int64_t> forwards_, backwards_;
};

TEST(StageSchedule, DoesEveryMicrobatchOnceAndNeverWaitsInACircle) {
  for (int64_t stages = 1; stages <= 8; ++stages) {
    for (int64_t microbatches = 1; microbatches <= 20; ++microbatches) {
      EXPECT_TRUE(Simulation(stages, microbatches).run()) << stages << ", " << microbatches;
      for (int64_t stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(std::ssize(stage_schedule(stages, stage, microbatches)), 2 * microbatches);
      }
    }
  }
}

}  // namespace
}  // namespace weft::train
