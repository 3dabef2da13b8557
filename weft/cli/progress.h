#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace weft::cli {

/// A line on stderr that shows how far something is, if stderr is a terminal; nothing otherwise.
/// The line goes when this does.
class ProgressBar {
 public:
  /// `unit` follows the numbers, which are divided by `scale`. Shown if `is_wanted` (one rank's).
  ProgressBar(std::string what, std::string unit, double scale, bool is_wanted);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Draws at most ten times a second.
  void show(uint64_t done, uint64_t total);

 private:
  std::string what_;
  std::string unit_;
  double scale_;
  bool is_shown_;
  bool is_drawn_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace weft::cli
