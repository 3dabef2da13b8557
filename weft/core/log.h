#pragma once

#include <string>

#include "weft/core/error.h"

namespace weft::core {

/// How much a line matters; kOff is above all lines.
enum class LogLevel { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3, kOff = 4 };

/// Least level that is written; WEFT_LOG_LEVEL (debug|info|warn|error|off) at start, warn without
/// it.
LogLevel log_level();
/// Changes the least level that is written.
void set_log_level(LogLevel level);
/// Writes one whole line to stderr, with its level, in a single write.
void write_log(LogLevel level, const std::string& line);

/// Logs the joined parts if `level` is enabled.
template <class... Parts>
void log(LogLevel level, const Parts&... parts) {
  if (level >= log_level()) write_log(level, join(parts...));
}

}  // namespace weft::core
