#pragma once

#include <string>

namespace weft::cli {

/// True once the user has pressed Ctrl-C; `watch_interrupt` turns the signal into that.
void watch_interrupt();
bool is_interrupted();
/// Takes SIGTERM, which ends jobs of SLURM and of containers, for Ctrl-C.
void watch_termination();
/// The signal that made is_interrupted() true; 0 before.
int caught_signal();

/// Writes generated text to stdout as it comes.
class TextOutput {
 public:
  /// Writes and flushes. Returns false once the reader has gone; throws IoError when writing fails.
  bool write(const std::string& text);
};

/// The whole of stdin, at most 64 MiB. Throws ConfigError above that, IoError.
std::string read_stdin();

}  // namespace weft::cli
