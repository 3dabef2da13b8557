#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/train/metrics/metrics_file.h"

namespace weft::train {

/// One line about a step, of the same width for all steps of a run:
/// "step  120/1000  loss 3.2145  norm 0.842  lr 3.00e-04  12.3 k tok/s  MFU 43.1 %  1.23 GB  ETA
/// 2 h 05 min". MFU is left out where the peak is not known; an evaluation's loss stands behind the
/// step's. `seconds_left` is the expected time to the last step.
std::string progress_line(const StepMetrics& metrics, int64_t num_steps, double seconds_left);

/// Time to the last step, from the median of recent steps: early ones and those with a checkpoint
/// or an evaluation don't count for more than one.
class EtaEstimate {
 public:
  /// How long a step took, with all that belongs to it.
  void add(double step_seconds);
  /// The time of this many steps; 0 before the first.
  double seconds_left(int64_t num_steps) const;

 private:
  static constexpr size_t kWindow = 32;
  std::array<double, kWindow> seconds_{};
  size_t count_ = 0;
};

}  // namespace weft::train
