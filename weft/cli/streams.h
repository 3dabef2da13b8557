#pragma once

#include <string>

namespace weft::cli {

/// True once the user has pressed Ctrl-C, also where only another rank of weft's launcher was told;
/// `watch_interrupt` turns the signal into that. A signal that the program was started to ignore
/// stays ignored.
void watch_interrupt();
bool is_interrupted();
/// Takes SIGTERM, which ends jobs of SLURM and of containers, and SIGHUP, which comes when a
/// terminal closes, for Ctrl-C.
void watch_termination();
/// The last of these signals; 0 before the first.
int caught_signal();
/// Forgets it: the user wants to go on.
void forget_interrupt();
/// The exit code after that signal, as shells tell it: 130 after Ctrl-C.
int interrupted_status();
/// How many of them have come.
int num_signals();

/// Writes generated text to stdout as it comes.
class TextOutput {
 public:
  /// Writes and flushes. Returns false once the reader has gone; throws IoError when writing fails.
  bool write(const std::string& text);
};

/// `text` without a line break at its end: `echo` and editors write it, nobody asks with it.
std::string without_last_break(std::string text);

/// The whole of stdin, at most 64 MiB. Throws ConfigError above that, IoError.
std::string read_stdin();

}  // namespace weft::cli
