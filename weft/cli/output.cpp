#include "weft/cli/output.h"

#include <CLI/Validators.hpp>

namespace weft::cli {

void add_output_flags(CLI::App& app, OutputFlags& flags) {
  app.add_option("out,-o,--out", flags.out, "the folder or file to write");
  app.add_flag("--force", flags.force, "replace a model that is there already");
  app.add_option("--max-shard-size", flags.max_file_bytes,
                 "most bytes per safetensors file, e.g. 500MB (default: 5GB)")
      ->transform(CLI::AsSizeValue(true));
}

}  // namespace weft::cli
