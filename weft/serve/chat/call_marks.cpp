#include "weft/serve/chat/call_marks.h"

#include <algorithm>

namespace weft::serve {

std::string_view stripped(std::string_view text) {
  text = stripped_front(text);
  return text.substr(0, text.find_last_not_of(kCallSpace) + 1);
}

std::string_view stripped_front(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kCallSpace), text.size()));
}

bool is_begun(std::string_view text, std::string_view mark) {
  return text.size() < mark.size() && mark.starts_with(text);
}

bool is_begun(std::string_view text, std::span<const std::string_view> marks) {
  return std::ranges::any_of(marks, [&](std::string_view mark) { return is_begun(text, mark); });
}

// In one pass: a mark that does not come costs nothing beyond the one that does.
FoundMark first_mark(std::string_view text, std::span<const std::string_view> marks) {
  for (size_t at = 0; at < text.size(); ++at) {
    std::string_view longest;
    for (const std::string_view mark : marks) {
      if (mark.size() > longest.size() && text.substr(at).starts_with(mark)) longest = mark;
    }
    if (!longest.empty()) return {at, longest};
  }
  return {text.size(), {}};
}

size_t size_before_mark(std::string_view text, std::span<const std::string_view> marks) {
  size_t most = 0;
  for (const std::string_view mark : marks) {
    if (mark.empty()) continue;
    size_t size = std::min(text.size(), mark.size() - 1);
    while (size > 0 && !text.ends_with(mark.substr(0, size))) --size;
    most = std::max(most, size);
  }
  return text.size() - most;
}

size_t ObjectScan::take(std::string_view text, std::span<const std::string_view> ends) {
  const auto may_end = [&](std::string_view rest) {
    return std::ranges::any_of(ends, [&](std::string_view end) {
      return !end.empty() && (rest.starts_with(end) || is_begun(rest, end));
    });
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_done_ || (!in_string_ && may_end(text.substr(i)))) return i;
    take_one(text[i]);
  }
  return text.size();
}

void ObjectScan::take_one(char c) {
  if (in_string_) {
    const bool ends = c == '"' && !is_escaped_;
    is_escaped_ = c == '\\' && !is_escaped_;
    in_string_ = !ends;
    return;
  }
  in_string_ = c == '"';
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') is_done_ = --depth_ <= 0;
}

}  // namespace weft::serve
