#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/cli/talk/line_editor.h"

namespace weft::cli {

/// Reads what a user types, message by message. On a terminal with an editor (LineEditor), and a
/// message may have several lines: pasted ones, a line that ends with a backslash, and all between
/// """ and """. From a pipe or a file each line is a message.
class TalkInput {
 public:
  /// `words` are completed at the start of a line.
  explicit TalkInput(std::vector<std::string> words);

  /// A message and how its reading ended: kTyped, kInterrupted (text: what was typed until then) or
  /// kEnd. Line breaks at its end are left out.
  ReadLine read();
  bool is_terminal() const { return is_terminal_; }

 private:
  ReadLine read_line(const std::string& prompt);
  ReadLine read_plain_line();

  bool is_terminal_;
  std::unique_ptr<LineEditor> editor_;
  /// Of a plain input: bytes that were read and belong to the next lines.
  std::string bytes_;
};

}  // namespace weft::cli
