#pragma once

#include <string>
#include <vector>

namespace weft::cli {

/// Runs `weft ARGS…` and returns the exit code. Every error becomes one line on stderr, once for
/// ranks that agree on it.
int run_program(const std::vector<std::string>& args);

}  // namespace weft::cli
