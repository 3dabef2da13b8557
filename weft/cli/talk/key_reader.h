#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "weft/cli/talk/line_end.h"

namespace weft::cli {

/// Turns the bytes that a terminal sends into characters for a line editor, and sees what is
/// pasted: terminals put it between ESC [200~ and ESC [201~ where they were asked to (bracketed
/// paste, xterm's control sequences). Line breaks of it end lines, its other control characters are
/// quoted, so that none of them edits.
class KeyReader {
 public:
  /// Reads `descriptor`; `on_wait` is called several times a second while nothing comes.
  KeyReader(int descriptor, std::function<void()> on_wait);

  /// The next character, in the program's UTF-8 locale. Returns 1, 0 at the end of the input, and
  /// -1 after a signal that is watched (streams.h).
  int read(wchar_t& key);
  /// A new line begins.
  void begin_line() { end_ = LineEnd::kTyped; }
  /// What ended the line, as far as it is known here.
  LineEnd line_end() const { return end_; }

 private:
  bool fill(int most_ms);
  bool take(std::string_view marker);
  int take_pasted(wchar_t& key);
  int take_character(wchar_t& key);

  int descriptor_;
  std::function<void()> on_wait_;
  /// Bytes that were read and not yet taken.
  std::string bytes_;
  bool is_pasting_ = false;
  bool is_quoted_ = false;
  bool has_ended_ = false;
  LineEnd end_ = LineEnd::kTyped;
};

}  // namespace weft::cli
