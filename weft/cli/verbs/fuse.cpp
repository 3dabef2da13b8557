#include "weft/cli/output.h"
#include "weft/cli/verbs/export_run.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/core/files/atomic_folder.h"

namespace weft::cli {

int run_fuse(const FuseOptions& options) {
  const OutputOptions& output = options.output;
  const auto checkpoint = find_checkpoint(options.run);
  core::check<core::ConfigError>(checkpoint.has_value(), core::quote(options.run),
                                 ": expected a run of weft lora or one of its checkpoints");
  core::check_output_folder(output.out, output.force, kModelMarker);
  fuse_run(*checkpoint, options.dtype == "bf16" ? "bfloat16" : "float32", output);
  return 0;
}

}  // namespace weft::cli
