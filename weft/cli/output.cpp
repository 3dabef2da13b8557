#include "weft/cli/output.h"

#include <unistd.h>

#include <CLI/Validators.hpp>
#include <cstdio>

namespace weft::cli {

void add_output_flags(CLI::App& app, OutputFlags& flags) {
  app.add_option("out,-o,--out", flags.out, "the folder or file to write");
  app.add_flag("--force", flags.force, "replace a model that is there already");
  app.add_option("--max-shard-size", flags.max_file_bytes,
                 "most bytes per safetensors file, e.g. 500MB (default: 5GB)")
      ->transform(CLI::AsSizeValue(true));
}

WriteMeter::WriteMeter() : is_shown_(::isatty(STDERR_FILENO) == 1) {}

void WriteMeter::show(uint64_t done, uint64_t total) {
  const int percent =
      total == 0 ? 100
                 : static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total));
  if (!is_shown_ || percent == percent_) return;
  percent_ = percent;
  std::fprintf(stderr, "\r%3d %% of %.0f MB%s", percent, static_cast<double>(total) / 1e6,
               done == total ? "\n" : "");
}

}  // namespace weft::cli
