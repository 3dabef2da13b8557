#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace weft::serve {

/// White space of JSON.
inline constexpr std::string_view kCallSpace = " \t\r\n";

/// Without white space at its ends.
std::string_view stripped(std::string_view text);
/// Without white space at its begin.
std::string_view stripped_front(std::string_view text);

/// Whether more text may make a mark of this.
bool is_begun(std::string_view text, std::string_view mark);
/// The same of any of several.
bool is_begun(std::string_view text, std::span<const std::string_view> marks);

/// Where a mark stands; `mark` is empty if none does.
struct FoundMark {
  size_t at = 0;
  std::string_view mark = {};
};
/// The first of several marks in a text. Empty ones are none.
FoundMark first_mark(std::string_view text, std::span<const std::string_view> marks);
/// How many bytes of a text without marks belong to none, whatever follows.
size_t size_before_mark(std::string_view text, std::span<const std::string_view> marks);

/// Finds the end of a JSON object that comes in pieces. It counts braces, and leaves it to who
/// reads the object whether it is one.
class ObjectScan {
 public:
  /// `depth`: braces that were opened before.
  explicit ObjectScan(int depth = 0) : depth_(depth) {}

  /// How many bytes of the text belong to the object: up to its end, or to one of `ends`, or what
  /// may become one, outside of the object's strings. Empty ones are none.
  size_t take(std::string_view text, std::span<const std::string_view> ends = {});
  bool is_done() const { return is_done_; }

 private:
  void take_one(char c);

  int depth_;
  bool in_string_ = false, is_escaped_ = false, is_done_ = false;
};

}  // namespace weft::serve
