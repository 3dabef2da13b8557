#include "weft/cli/model/export_run.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"

namespace weft::cli {

int run_fuse(const FuseOptions& options) {
  const auto checkpoint = find_checkpoint(options.run);
  core::check<core::ConfigError>(checkpoint.has_value(), core::quote(options.run),
                                 ": expected a run of weft lora or one of its checkpoints");
  fuse_run(*checkpoint, options.dtype == "bf16" ? "bfloat16" : "float32", options.output);
  return 0;
}

}  // namespace weft::cli
