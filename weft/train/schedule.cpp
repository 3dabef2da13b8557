#include "weft/train/schedule.h"

#include <cmath>
#include <numbers>

#include "weft/core/error.h"

namespace weft::train {

using core::check;
using core::ConfigError;

namespace {

// Of `length` steps, the part that is over after `done` of them; of no steps all.
double part_of(int64_t done, int64_t length) {
  if (done >= length) return 1;
  return static_cast<double>(done) / static_cast<double>(length);
}

double shape_at(DecayShape shape, double part) {
  switch (shape) {
    case DecayShape::kLinear:
      return 1 - part;
    case DecayShape::kCosine:
      return (1 + std::cos(std::numbers::pi * part)) / 2;
    case DecayShape::kSqrt:
      return 1 - std::sqrt(part);
  }
  core::fail<core::InternalError>("train.schedule: unknown shape ", static_cast<int>(shape));
}

// What of the peak there is after the warm-up, without the final fraction.
double decay_at(const Schedule& schedule, int64_t step) {
  const int64_t run = schedule.total_steps - schedule.warmup_steps;
  switch (schedule.kind) {
    case ScheduleKind::kConstant:
      return 1;
    case ScheduleKind::kLinear:
      return shape_at(DecayShape::kLinear, part_of(step - schedule.warmup_steps, run));
    case ScheduleKind::kCosine:
      return shape_at(DecayShape::kCosine, part_of(step - schedule.warmup_steps, run));
    case ScheduleKind::kWsd: {
      const int64_t begin = schedule.total_steps - schedule.decay_steps;
      if (step < begin) return 1;
      return shape_at(schedule.decay, part_of(step - begin, schedule.decay_steps));
    }
  }
  core::fail<core::InternalError>("train.schedule: unknown kind ", static_cast<int>(schedule.kind));
}

}  // namespace

void check_schedule(const Schedule& schedule) {
  check<ConfigError>(std::isfinite(schedule.peak) && schedule.peak >= 0,
                     "train.schedule: peak: expected a learning rate of at least 0, got ",
                     schedule.peak);
  check<ConfigError>(schedule.final_fraction >= 0 && schedule.final_fraction <= 1,
                     "train.schedule: final_fraction: expected 0 to 1, got ",
                     schedule.final_fraction);
  check<ConfigError>(
      schedule.warmup_steps >= 0 && schedule.total_steps >= 0 && schedule.decay_steps >= 0,
      "train.schedule: expected steps of at least 0, got ", schedule.warmup_steps, " of warm-up, ",
      schedule.decay_steps, " of decay, ", schedule.total_steps, " in all");
  if (schedule.kind == ScheduleKind::kConstant) return;
  const int64_t decay = schedule.kind == ScheduleKind::kWsd ? schedule.decay_steps : 0;
  check<ConfigError>(schedule.warmup_steps <= schedule.total_steps &&
                         decay <= schedule.total_steps - schedule.warmup_steps,
                     "train.schedule: ", schedule.warmup_steps, " steps of warm-up and ", decay,
                     " of decay in a run of ", schedule.total_steps,
                     "; make them shorter or the run longer");
}

double learning_rate(const Schedule& schedule, int64_t step) {
  check_schedule(schedule);
  check<ConfigError>(step >= 0, "train.schedule: step: expected at least 0, got ", step);
  if (step < schedule.warmup_steps) return schedule.peak * part_of(step, schedule.warmup_steps);
  const double left = schedule.final_fraction;
  return schedule.peak * (left + (1 - left) * decay_at(schedule, step));
}

}  // namespace weft::train
