#include "weft/serve/chat/member_text.h"

namespace weft::serve {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Walks over a text that is known to be JSON.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) {}

  char peek() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  void skip_one() { ++at_; }
  // The text of the value that begins here, past which it goes.
  std::string_view value() {
    peek();
    const size_t begin = at_;
    int depth = 0;
    do {
      const char c = text_[at_];
      if (c == '"') {
        skip_string();
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      ++at_;
    } while (at_ < text_.size() && (depth > 0 || !ends_here()));
    return text_.substr(begin, at_ - begin);
  }

 private:
  bool ends_here() const {
    return is_space(text_[at_]) ||
           std::string_view(",:]}").find(text_[at_]) != std::string_view::npos;
  }
  void skip_string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::optional<std::string_view> member(std::string_view object, std::string_view name) {
  Walker walker(object);
  if (walker.peek() != '{') return std::nullopt;
  walker.skip_one();
  while (walker.peek() == '"') {
    const std::string_view key = walker.value();
    walker.peek();
    walker.skip_one();
    const std::string_view value = walker.value();
    if (key.substr(1, key.size() - 2) == name) return value;
    if (walker.peek() == ',') walker.skip_one();
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> member_text(std::string_view object,
                                       const std::vector<std::string>& path) {
  for (const std::string& name : path) {
    const auto found = member(object, name);
    if (!found) return std::nullopt;
    object = *found;
  }
  return std::string(object);
}

std::vector<std::string> element_texts(std::string_view list) {
  std::vector<std::string> texts;
  Walker walker(list);
  if (walker.peek() != '[') return texts;
  walker.skip_one();
  while (walker.peek() != ']' && walker.peek() != '\0') {
    texts.emplace_back(walker.value());
    if (walker.peek() == ',') walker.skip_one();
  }
  return texts;
}

}  // namespace weft::serve
