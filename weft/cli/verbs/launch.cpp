#include "weft/cli/verbs/run.h"

namespace weft::cli {

int run_launch(const dist::LaunchOptions& options) { return dist::launch(options); }

}  // namespace weft::cli
