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

FoundMark first_mark(std::string_view text, std::span<const std::string_view> marks) {
  FoundMark first{text.size(), {}};
  for (const std::string_view mark : marks) {
    const size_t at = mark.empty() ? text.npos : text.find(mark);
    if (at == text.npos) continue;
    const bool is_first = at < first.at || (at == first.at && mark.size() > first.mark.size());
    if (is_first || first.mark.empty()) first = {at, mark};
  }
  return first;
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

size_t ObjectScan::take(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_done_) return i;
    const char c = text[i];
    if (in_string_) {
      const bool ends = c == '"' && !is_escaped_;
      is_escaped_ = c == '\\' && !is_escaped_;
      in_string_ = !ends;
      continue;
    }
    in_string_ = c == '"';
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') is_done_ = --depth_ <= 0;
  }
  return text.size();
}

}  // namespace weft::serve
