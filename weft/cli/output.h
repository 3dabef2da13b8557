#pragma once

#include <cstdint>
#include <functional>
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

/// Shows "34 % of 1234 MB" on a terminal while a model is written; does nothing where stderr is
/// none.
class WriteMeter {
 public:
  WriteMeter();
  void show(uint64_t done, uint64_t total);

 private:
  bool is_shown_;
  int percent_ = -1;
};

}  // namespace weft::cli
