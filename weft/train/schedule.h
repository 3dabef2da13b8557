#pragma once

#include <cstdint>

namespace weft::train {

/// How the learning rate goes after its warm-up.
enum class ScheduleKind {
  /// At the peak to the end.
  kConstant,
  /// Down in a straight line from the end of the warm-up to the last step.
  kLinear,
  /// Down half a cosine wave (arXiv:1608.03983 without restarts).
  kCosine,
  /// Warm-up, stable, decay: at the peak until the last `decay_steps` (arXiv:2404.06395).
  kWsd,
};

/// The curve of kWsd's decay, of the part p of it that is over.
enum class DecayShape {
  /// 1 - p
  kLinear,
  /// (1 + cos(pi p)) / 2
  kCosine,
  /// 1 - sqrt(p) (arXiv:2405.18392)
  kSqrt,
};

/// The learning rate of every step of a run.
struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  /// The highest learning rate.
  double peak = 3e-4;
  /// Steps in which the rate rises from 0 in a straight line.
  int64_t warmup_steps = 0;
  /// Steps of the run, with warm-up and decay in them. kConstant needs none.
  int64_t total_steps = 0;
  /// kWsd alone.
  int64_t decay_steps = 0;
  DecayShape decay = DecayShape::kLinear;
  /// What of the peak is left at the last step and after it, 0 to 1.
  double final_fraction = 0;
};

/// Throws ConfigError, naming the value, for a schedule that can't be: negative numbers, warm-up
/// and decay that don't fit in the run, a final fraction outside 0 to 1.
void check_schedule(const Schedule& schedule);

/// The learning rate after `step` updates, from 0: that of the next one. A pure function; the same
/// numbers as the schedules of Hugging Face transformers, whose first update of a warm-up has the
/// rate 0. Past the end it stays. Throws ConfigError for a negative step.
double learning_rate(const Schedule& schedule, int64_t step);

}  // namespace weft::train
