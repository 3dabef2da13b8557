#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "weft/serve/load/load.h"

namespace weft::serve {

/// What an answer has to keep to count for goodput, in milliseconds.
struct LoadLimits {
  std::optional<double> first_token;
  /// The mean between the pieces of an answer.
  std::optional<double> between_tokens;
};

/// An object with `answers`, `failed`, `tokens`, `seconds`, `answers_per_s`, `tokens_per_s`,
/// `first_token_ms` and `between_tokens_ms` with p50, p90 and p99 each, or null where there are
/// none; `prompt_tokens` where the server counts them; and, where there are limits, `goodput` in
/// answers a second that keep all of them.
nlohmann::json load_report(const LoadResult& result, const LoadLimits& limits);

/// Lines about such an object; `title` says how it was asked.
std::string load_text(const std::string& title, const nlohmann::json& report);

}  // namespace weft::serve
