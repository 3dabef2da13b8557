#include "weft/io/shard_info/name_pattern.h"

#include <algorithm>
#include <string_view>

namespace weft::io {
namespace {

// The dotted segments of a name, one after another.
class Segments {
 public:
  explicit Segments(std::string_view name) : rest_(name) {}

  // Nothing may follow the last.
  std::optional<std::string_view> next() {
    if (is_done_) return std::nullopt;
    const size_t dot = rest_.find('.');
    const std::string_view segment = rest_.substr(0, dot);
    is_done_ = dot == std::string_view::npos;
    if (!is_done_) rest_.remove_prefix(dot + 1);
    return segment;
  }

 private:
  std::string_view rest_;
  bool is_done_ = false;
};

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::optional<std::vector<std::string>> match_pattern(const std::string& pattern,
                                                      const std::string& name) {
  Segments wanted(pattern), given(name);
  std::vector<std::string> numbers;
  while (true) {
    const auto expected = wanted.next(), segment = given.next();
    if (expected.has_value() != segment.has_value()) return std::nullopt;
    if (!segment) return numbers;
    if (*expected == "*" && is_number(*segment)) {
      numbers.emplace_back(*segment);
    } else if (*expected != *segment) {
      return std::nullopt;
    }
  }
}

std::optional<std::string> fill_pattern(const std::string& pattern,
                                        const std::vector<std::string>& numbers) {
  std::string name;
  size_t used = 0;
  Segments segments(pattern);
  while (const auto segment = segments.next()) {
    const bool is_star = *segment == "*";
    if (is_star && used == numbers.size()) return std::nullopt;
    name += '.';
    name += is_star ? std::string_view(numbers[used++]) : *segment;
  }
  if (used != numbers.size()) return std::nullopt;
  return name.substr(1);
}

size_t num_stars(const std::string& pattern) {
  size_t count = 0;
  Segments segments(pattern);
  while (const auto segment = segments.next()) count += *segment == "*" ? 1 : 0;
  return count;
}

std::string masked_name(const std::string& name) {
  std::string masked;
  Segments segments(name);
  while (const auto segment = segments.next()) {
    masked += '.';
    masked += is_number(*segment) ? std::string_view("*") : *segment;
  }
  return masked;
}

}  // namespace weft::io
