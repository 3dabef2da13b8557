#include "weft/serve/chat/pending_text.h"

namespace weft::serve {

void PendingText::add(std::string_view text) {
  // Bytes move only once as many have gone.
  if (begin_ > text_.size() / 2) {
    text_.erase(0, begin_);
    begin_ = 0;
  }
  text_ += text;
}

std::string_view PendingText::front() {
  const std::string_view rest = text();
  num_space_ = rest.size() - stripped_front(rest.substr(num_space_)).size();
  return rest.substr(num_space_);
}

FoundMark PendingText::find(std::span<const std::string_view> marks) {
  const FoundMark found = first_mark(unsearched(), marks);
  if (!found.mark.empty()) return {searched_ + found.at, found.mark};
  searched_ += size_before_mark(unsearched(), marks);
  return {text().size(), {}};
}

std::string PendingText::take(size_t num_bytes) {
  std::string taken(text().substr(0, num_bytes));
  drop(num_bytes);
  return taken;
}

void PendingText::drop(size_t num_bytes) {
  begin_ += num_bytes;
  searched_ = num_space_ = 0;
}

}  // namespace weft::serve
