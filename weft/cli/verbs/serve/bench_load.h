#pragma once

#include "weft/cli/options.h"

namespace weft::cli {

/// `weft bench --url`: measures a server and prints what came of it, also of what was answered
/// until Ctrl-C. Returns the exit code; throws ConfigError and IoError, as serve::run_load.
int run_bench_load(const BenchOptions& options);

}  // namespace weft::cli
