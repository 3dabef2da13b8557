#pragma once

#include <cstdint>
#include <vector>

namespace weft::train {

/// What a stage of a pipeline does with a microbatch.
struct StageTask {
  bool is_forward = true;
  int64_t microbatch = 0;

  bool operator==(const StageTask&) const = default;
};

/// The order of a stage's tasks in a step, one forward, one backward (1F1B): the stage begins with
/// forwards of as many microbatches as there are stages after it, then backward follows forward
/// one by one, and the rest are backwards. So stage s keeps at most min(num_microbatches,
/// num_stages - s) microbatches between forward and backward, whatever their number, and each
/// microbatch's forward and backward come once, in the microbatches' order. With one stage backward
/// follows forward at once. Pure arithmetic. Source: Narayanan et al. 2021 (arXiv:2104.04473).
std::vector<StageTask> stage_schedule(int64_t num_stages, int64_t stage, int64_t num_microbatches);

/// Forwards that a stage begins with, before its first backward's own.
int64_t num_warm_up(int64_t num_stages, int64_t stage, int64_t num_microbatches);

}  // namespace weft::train
