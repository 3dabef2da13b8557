#include "weft/train/metrics/progress_line.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "weft/core/error.h"
#include "weft/train/metrics/human_text.h"

namespace weft::train {
namespace {

std::string padded(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string scientific_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2e", number);
  return text;
}

}  // namespace

std::string progress_line(const StepMetrics& metrics, int64_t num_steps, double seconds_left) {
  const std::string steps = std::to_string(num_steps);
  std::string line = core::join("step ", padded(std::to_string(metrics.step), steps.size()), "/",
                                steps, "  loss ", padded(fixed_text(metrics.loss, 4), 7));
  if (metrics.eval_loss) line += "  eval " + padded(fixed_text(*metrics.eval_loss, 4), 7);
  line += "  norm " + padded(fixed_text(metrics.grad_norm, 3), 6);
  line += "  lr " + scientific_text(metrics.lr);
  line += "  " + padded(count_text(metrics.tokens_per_s), 6) + " tok/s";
  if (metrics.mfu) line += "  MFU " + padded(fixed_text(*metrics.mfu * 100, 1), 4) + " %";
  line += "  " + padded(bytes_text(static_cast<double>(metrics.rss_bytes)), 7);
  return line + "  ETA " + duration_text(seconds_left);
}

void EtaEstimate::add(double step_seconds) { seconds_[count_++ % kWindow] = step_seconds; }

double EtaEstimate::seconds_left(int64_t num_steps) const {
  std::vector<double> recent(seconds_.begin(), seconds_.begin() + std::min(count_, kWindow));
  if (recent.empty()) return 0;
  const auto middle = recent.begin() + static_cast<std::ptrdiff_t>(recent.size() / 2);
  std::nth_element(recent.begin(), middle, recent.end());
  return *middle * static_cast<double>(num_steps);
}

}  // namespace weft::train
