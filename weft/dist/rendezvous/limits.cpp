#include "weft/dist/rendezvous/limits.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "weft/core/error.h"

namespace weft::dist {

std::chrono::milliseconds limit_from_env(const char* name, std::chrono::milliseconds otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr) return otherwise;
  const std::string_view value(text);
  int64_t seconds = 0;
  const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  const bool whole = error == std::errc() && stop == value.data() + value.size();
  core::check<core::ConfigError>(whole && seconds >= 1 && seconds <= 1'000'000,
                                 "dist.World: ", name,
                                 ": expected seconds from 1 to 1000000, got '", value, "'");
  return std::chrono::seconds(seconds);
}

std::chrono::milliseconds start_timeout_from_env(std::chrono::milliseconds otherwise) {
  return limit_from_env("WEFT_START_TIMEOUT_S", otherwise);
}

std::chrono::milliseconds silence_limit() {
  const char* text = std::getenv("WEFT_HEARTBEAT_TIMEOUT_S");
  const double seconds = text == nullptr ? 5.0 : std::strtod(text, nullptr);
  return seconds > 0 ? std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000))
                     : std::chrono::milliseconds::max();
}

std::chrono::milliseconds launcher_silence_limit() {
  constexpr std::chrono::milliseconds kLater{2000};
  constexpr auto kNever = std::chrono::milliseconds::max();
  const auto limit = silence_limit();
  return limit == kNever ? kNever : limit + kLater;
}

}  // namespace weft::dist
