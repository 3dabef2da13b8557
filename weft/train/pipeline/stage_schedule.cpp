#include "weft/train/pipeline/stage_schedule.h"

#include <algorithm>

namespace weft::train {

int64_t num_warm_up(int64_t num_stages, int64_t stage, int64_t num_microbatches) {
  return std::min(num_microbatches, num_stages - stage - 1);
}

std::vector<StageTask> stage_schedule(int64_t num_stages, int64_t stage, int64_t num_microbatches) {
  const int64_t warm_up = num_warm_up(num_stages, stage, num_microbatches);
  std::vector<StageTask> tasks;
  for (int64_t m = 0; m < num_microbatches + warm_up; ++m) {
    if (m < num_microbatches) tasks.push_back({true, m});
    if (m >= warm_up) tasks.push_back({false, m - warm_up});
  }
  return tasks;
}

}  // namespace weft::train
