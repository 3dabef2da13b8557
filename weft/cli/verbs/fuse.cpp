#include "weft/cli/flags.h"
#include "weft/cli/verbs.h"
#include "weft/cli/verbs/export_run.h"
#include "weft/core/error.h"
#include "weft/core/files/atomic_folder.h"

namespace weft::cli {

int run_fuse(const Args& args) {
  CLI::App app(
      "Writes the model that weft lora has trained: base and adapters in one, as a Hugging Face "
      "folder in plain numbers.",
      "fuse");
  std::string run, dtype = "f32";
  OutputFlags output;
  app.add_option("run", run, "the run's folder, or one of its checkpoints");
  add_output_flags(app, output);
  app.add_option("--dtype", dtype, "f32 or bf16");
  if (!parse_flags(app, args, {"run", "--out"})) return 0;
  core::check<core::ConfigError>(dtype == "f32" || dtype == "bf16", "--dtype: ", core::quote(dtype),
                                 ", expected f32 or bf16");
  const auto checkpoint = find_checkpoint(run);
  core::check<core::ConfigError>(checkpoint.has_value(), core::quote(run),
                                 ": expected a run of weft lora or one of its checkpoints");
  core::check_output_folder(output.out, output.force, kModelMarker);
  fuse_run(*checkpoint, dtype == "bf16" ? "bfloat16" : "float32", output);
  return 0;
}

}  // namespace weft::cli
