#pragma once

#include <string>

#include "weft/cli/options.h"

namespace weft::cli {

/// Runs a verb that needs tensors with the arguments that follow it; returns the exit code. Throws
/// core::Error; InternalError for a verb that needs none.
int run_tensor_verb(const std::string& verb, const Args& args);

}  // namespace weft::cli
