#include "weft/io/views/name_pattern.h"

#include <algorithm>

namespace weft::io {
namespace {

std::vector<std::string> dotted(const std::string& name) {
  std::vector<std::string> segments(1);
  for (const char c : name) {
    if (c == '.') {
      segments.emplace_back();
    } else {
      segments.back() += c;
    }
  }
  return segments;
}

bool is_number(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::optional<std::vector<std::string>> match_pattern(const std::string& pattern,
                                                      const std::string& name) {
  const std::vector<std::string> wanted = dotted(pattern);
  const std::vector<std::string> given = dotted(name);
  if (wanted.size() != given.size()) return std::nullopt;
  std::vector<std::string> numbers;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == "*" && is_number(given[i])) {
      numbers.push_back(given[i]);
    } else if (wanted[i] != given[i]) {
      return std::nullopt;
    }
  }
  return numbers;
}

std::optional<std::string> fill_pattern(const std::string& pattern,
                                        const std::vector<std::string>& numbers) {
  std::string name;
  size_t used = 0;
  for (const std::string& segment : dotted(pattern)) {
    const bool is_star = segment == "*";
    if (is_star && used == numbers.size()) return std::nullopt;
    name += '.';
    name += is_star ? numbers[used++] : segment;
  }
  if (used != numbers.size()) return std::nullopt;
  return name.substr(1);
}

size_t num_stars(const std::string& pattern) {
  const std::vector<std::string> segments = dotted(pattern);
  return static_cast<size_t>(std::count(segments.begin(), segments.end(), "*"));
}

}  // namespace weft::io
