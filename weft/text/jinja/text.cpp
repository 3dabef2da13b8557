#include "weft/text/jinja/text.h"

#include <algorithm>

#include "weft/text/unicode/unicode.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text::jinja {

Text::Text(std::string bytes, bool typed) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), typed});
}

bool Text::any_typed() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.typed; });
}

void Text::append(std::string_view bytes, bool typed) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().typed == typed) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), typed});
  }
}

void Text::append(const Text& other) {
  size_t begin = 0;
  for (const Run& run : other.runs_) {
    append(std::string_view(other.bytes_).substr(begin, run.end - begin), run.typed);
    begin = run.end;
  }
}

Text Text::slice(size_t begin, size_t end) const {
  Text out;
  auto run = std::upper_bound(runs_.begin(), runs_.end(), begin,
                              [](size_t value, const Run& r) { return value < r.end; });
  for (; begin < end && run != runs_.end(); ++run) {
    const size_t stop = std::min(end, run->end);
    out.append(std::string_view(bytes_).substr(begin, stop - begin), run->typed);
    begin = stop;
  }
  return out;
}

std::vector<size_t> char_offsets(std::string_view text) {
  std::vector<size_t> offsets;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) offsets.push_back(i);
  }
  offsets.push_back(text.size());
  return offsets;
}

bool is_python_space(char32_t code) {
  // Python adds the four ASCII separators to Unicode's white space.
  return (code >= 0x1C && code <= 0x1F) || (unicode_class(code) & kSpace) != 0;
}

namespace {

bool is_stripped(std::string_view character, const std::string* chars) {
  if (chars != nullptr) return chars->find(character) != std::string::npos;
  return is_python_space(utf8_step(character).code);
}

}  // namespace

Text strip(const Text& text, Ends ends, const std::string* chars) {
  const std::vector<size_t> offsets = char_offsets(text.bytes());
  const std::string_view bytes = text.bytes();
  size_t begin = 0, end = offsets.size() - 1;
  const auto character = [&](size_t i) {
    return bytes.substr(offsets[i], offsets[i + 1] - offsets[i]);
  };
  if (ends != Ends::kRight) {
    while (begin < end && is_stripped(character(begin), chars)) ++begin;
  }
  if (ends != Ends::kLeft) {
    while (end > begin && is_stripped(character(end - 1), chars)) --end;
  }
  return text.slice(offsets[begin], offsets[end]);
}

namespace {

struct Mapping {
  enum Which { kUpper, kLower, kTitle };
};

void append_case(std::string& out, char32_t code, Mapping::Which which) {
  const CaseMap* map = find_case(code);
  if (map == nullptr) return append_utf8(out, code);
  const auto& target = which == Mapping::kUpper   ? map->upper
                       : which == Mapping::kLower ? map->lower
                                                  : map->title;
  for (const char32_t part : target) {
    if (part != 0) append_utf8(out, part);
  }
}

bool is_cased(char32_t code) { return (unicode_class(code) & (kUpper | kLower)) != 0; }

Mapping::Which mapping_of(Case to, char32_t code, bool after_cased, bool first) {
  switch (to) {
    case Case::kUpper:
      return Mapping::kUpper;
    case Case::kLower:
      return Mapping::kLower;
    case Case::kTitle:
      return after_cased ? Mapping::kLower : Mapping::kTitle;
    case Case::kCapitalize:
      return first ? Mapping::kTitle : Mapping::kLower;
    case Case::kSwap:
      break;
  }
  return (unicode_class(code) & kLower) != 0 ? Mapping::kUpper : Mapping::kLower;
}

// Final sigma (Unicode Standard, section 3.13): at the end of a word it has a form of its own.
bool is_final_sigma(char32_t code, bool after_cased, std::string_view rest) {
  if (code != 0x3A3 || !after_cased) return false;
  return rest.empty() || !is_cased(utf8_step(rest).code);
}

}  // namespace

std::string change_case(std::string_view text, Case to) {
  std::string out;
  bool after_cased = false;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    const bool first = rest.size() == text.size();
    rest.remove_prefix(step.size);
    const Mapping::Which which = mapping_of(to, step.code, after_cased, first);
    if (which == Mapping::kLower && is_final_sigma(step.code, after_cased, rest)) {
      append_utf8(out, 0x3C2);
    } else {
      append_case(out, step.code, which);
    }
    after_cased = is_cased(step.code);
  }
  return out;
}

}  // namespace weft::text::jinja
