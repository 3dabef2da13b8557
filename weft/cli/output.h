#pragma once

#include <cstdint>
#include <string>

#include "weft/cli/flags.h"

namespace weft::cli {

/// Where a verb writes a model: shared by convert, quantize and shard.
struct OutputFlags {
  std::string out;
  bool force = false;
  /// Most bytes of data per safetensors file.
  uint64_t max_file_bytes = 5'000'000'000;
};
/// Adds OUT, --force and --max-shard-size, bound to `flags`, which must outlive the parse.
void add_output_flags(CLI::App& app, OutputFlags& flags);

/// What marks a folder as a model's, which --force may replace.
inline constexpr char kModelMarker[] = "config.json";

}  // namespace weft::cli
