#include "weft/cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace weft::cli {
namespace {

constexpr int kWidth = 24;
constexpr std::chrono::milliseconds kPause{100};

}  // namespace

ProgressBar::ProgressBar(std::string what, std::string unit, double scale, bool is_wanted)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      scale_(scale),
      is_shown_(is_wanted && ::isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (is_drawn_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::show(uint64_t done, uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (!is_shown_ || now < next_) return;
  next_ = now + kPause;
  is_drawn_ = true;
  const double share = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  const int filled = std::clamp(static_cast<int>(share * kWidth), 0, kWidth);
  std::string bar(static_cast<size_t>(filled), '#');
  bar.resize(kWidth, '.');
  std::fprintf(stderr, "\r\033[K%s [%s] %3.0f %% of %.1f %s", what_.c_str(), bar.c_str(),
               share * 100, static_cast<double>(total) / scale_, unit_.c_str());
  std::fflush(stderr);
}

}  // namespace weft::cli
