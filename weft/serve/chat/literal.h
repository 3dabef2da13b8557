#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/chat_template.h"

namespace weft::serve {

/// Reads values as models write them in calls: as Python and JSON do, with names without quotes
/// for members of objects and with a mark as a further quote, between two of which a text stands as
/// it is. What it reads becomes JSON. Nested at most 64 deep.
class LiteralReader {
 public:
  /// `quote`: the further quote; empty: none. Both texts outlive this.
  explicit LiteralReader(std::string_view text, std::string_view quote = {})
      : text_(text), quote_(quote) {}

  /// Whether the text goes on with this, after white space; then it goes past it.
  bool skip(std::string_view token);
  bool is_at_end();
  /// Letters, digits, _, -, . and + ; empty if there are none.
  std::string_view word();
  /// The JSON text of the next value; none if there is none.
  std::optional<std::string> value();

 private:
  void skip_space();
  bool is_at_quote();
  std::optional<std::string> text_value();
  std::optional<std::string> escaped(char quote);
  bool add_escape(std::string& text);
  std::optional<std::string> list(std::string_view end);
  std::optional<std::string> object();
  std::optional<std::string> key();
  std::string_view bare_key();

  std::string_view text_, quote_;
  size_t at_ = 0;
  int depth_ = 0;
};

/// The JSON text of a whole text in such a form; none if it is no such text.
std::optional<std::string> literal_json(std::string_view text);

/// [f(x="a", y=1), g()] or one call without brackets; none if it is no such text.
std::optional<std::vector<text::ToolCall>> read_python_calls(std::string_view text);

/// call:f{x:"a",y:1}, any number of them; none if it is no such text.
std::optional<std::vector<text::ToolCall>> read_braced_calls(std::string_view text,
                                                             std::string_view quote);

}  // namespace weft::serve
