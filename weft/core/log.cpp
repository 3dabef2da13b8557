#include "weft/core/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "weft/core/terminal/printable.h"

namespace weft::core {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"debug", "info", "warn", "error", "off"};

LogLevel level_from_env() {
  const char* text = std::getenv("WEFT_LOG_LEVEL");
  if (text != nullptr) {
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (kNames[i] == text) return static_cast<LogLevel>(i);
    }
  }
  return LogLevel::kWarn;
}

std::atomic<LogLevel>& level_slot() {
  static std::atomic<LogLevel> level{level_from_env()};
  return level;
}

}  // namespace

LogLevel log_level() { return level_slot().load(std::memory_order_relaxed); }

void set_log_level(LogLevel level) { level_slot().store(level, std::memory_order_relaxed); }

void write_log(LogLevel level, const std::string& line) {
  // A line stays one line: text from a request must not be able to forge the next one.
  const std::string text =
      join("weft: ", kNames[static_cast<size_t>(level)], ": ", printable(line), "\n");
  // A short or failed write to stderr has nowhere better to be reported.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace weft::core
