#pragma once

#include "weft/cli/options.h"

namespace weft::cli {

/// What marks a folder as a model's, which --force may replace.
inline constexpr char kModelMarker[] = "config.json";

}  // namespace weft::cli
