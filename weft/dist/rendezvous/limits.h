#pragma once

#include <chrono>

namespace weft::dist {

/// How long ranks and hosts may take to meet, unless somebody says otherwise.
inline constexpr std::chrono::milliseconds kStartTimeout{30'000};

/// The whole seconds that the variable `name` gives, or `otherwise` if it is not set. Throws
/// ConfigError, naming the variable, for anything but 1 to 1,000,000.
std::chrono::milliseconds limit_from_env(const char* name, std::chrono::milliseconds otherwise);

/// WEFT_START_TIMEOUT_S, or `otherwise`. Throws ConfigError.
std::chrono::milliseconds start_timeout_from_env(
    std::chrono::milliseconds otherwise = kStartTimeout);

/// After this time without a heartbeat a rank counts as stuck: WEFT_HEARTBEAT_TIMEOUT_S, five
/// seconds if it is not set, max() if it says never.
std::chrono::milliseconds silence_limit();

/// The same for launchers, which wait two seconds longer: ranks notice by themselves first.
std::chrono::milliseconds launcher_silence_limit();

}  // namespace weft::dist
