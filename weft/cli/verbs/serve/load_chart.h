#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weft::cli {

/// The object of `weft bench --url --json` as an SVG document: over clients, or requests a second,
/// tokens and answers a second, and the times to the first token and between tokens. There
/// is at least one run.
std::string load_chart(const nlohmann::json& report);

}  // namespace weft::cli
