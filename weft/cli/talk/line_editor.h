#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/cli/talk/line_end.h"

namespace weft::cli {

/// A line without its end.
struct ReadLine {
  LineEnd end = LineEnd::kEnd;
  std::string text;
};

/// Edits lines on a terminal with libedit, which is loaded when the first editor opens: keys as in
/// a shell, history, completion with Tab, and pasted text as it is, as far as the terminal marks it
/// (bracketed paste). The terminal is as before between two reads.
class LineEditor {
 public:
  /// None where stdin or stderr is no terminal, or libedit is not installed. `words` are completed
  /// at the start of a line, names of files behind them; what was typed before is read from
  /// `history_path` and kept there (empty: only in memory).
  static std::unique_ptr<LineEditor> open(const std::string& history_path,
                                          std::vector<std::string> words);
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;
  ~LineEditor();

  /// `prompt` stands before the line. A signal that is watched (streams.h) ends the reading.
  ReadLine read(const std::string& prompt);
  /// Adds a text, which may have several lines, to the history.
  void remember(const std::string& text);

 private:
  LineEditor();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::cli
