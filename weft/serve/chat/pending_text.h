#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "weft/serve/chat/call_marks.h"

namespace weft::serve {

/// Text of an answer that was read and not given out yet. However many pieces it comes in, reading
/// it takes time in proportion to its bytes: what was searched in vain is not searched again when
/// more comes, and giving out the first bytes does not move the others.
class PendingText {
 public:
  void add(std::string_view text);
  std::string_view text() const { return std::string_view(text_).substr(begin_); }
  /// Without white space at its begin.
  std::string_view front();
  /// How many bytes `front` leaves out.
  size_t num_space() { return text().size() - front().size(); }

  /// Where the first of several marks stands, behind what was passed over. `marks` are the same
  /// from call to call until something is taken.
  FoundMark find(std::span<const std::string_view> marks);
  /// How many bytes `find` does not look at again: they belong to no mark, whatever follows.
  size_t num_searched() const { return searched_; }
  /// The text behind these bytes.
  std::string_view unsearched() const { return text().substr(searched_); }
  /// Marks in the next bytes that were not searched are not meant.
  void pass_over(size_t num_bytes) { searched_ += num_bytes; }
  /// Marks that were passed over are meant after all.
  void search_again() { searched_ = 0; }

  /// The first bytes, which are gone then.
  std::string take(size_t num_bytes);
  void drop(size_t num_bytes);
  std::string take_all() { return take(text().size()); }

 private:
  std::string text_;
  /// Bytes before this were given out.
  size_t begin_ = 0;
  /// Counted from begin_.
  size_t searched_ = 0, num_space_ = 0;
};

}  // namespace weft::serve
