#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weft::text::jinja {

/// A string that knows which of its characters were typed by a user. Valid UTF-8.
class Text {
 public:
  /// A stretch of one origin that ends before byte `end`.
  struct Run {
    size_t end;
    bool typed;
  };

  Text() = default;
  /// All of `bytes` has one origin.
  explicit Text(std::string bytes, bool typed = false);

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  /// In order, adjacent ones differ; the last ends with the text.
  const std::vector<Run>& runs() const { return runs_; }
  /// True if any character was typed.
  bool any_typed() const;

  /// Appends and keeps the origins.
  void append(const Text& other);
  void append(std::string_view bytes, bool typed);
  /// The bytes from `begin` to before `end`, with their origins.
  Text slice(size_t begin, size_t end) const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

/// Byte offsets of all characters, then the size.
std::vector<size_t> char_offsets(std::string_view text);

/// White space as Python's `str.isspace` sees it.
bool is_python_space(char32_t code);

/// Which ends of a text to strip.
enum class Ends { kBoth, kLeft, kRight };
/// Without white space, or without the characters of `chars` if it is given, at its ends.
Text strip(const Text& text, Ends ends, const std::string* chars = nullptr);

/// Case changes as Python's `str` methods do them.
enum class Case { kUpper, kLower, kTitle, kCapitalize, kSwap };
/// The text with every character's case changed.
std::string change_case(std::string_view text, Case to);

}  // namespace weft::text::jinja
