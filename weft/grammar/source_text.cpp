#include "weft/grammar/source_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "weft/core/error.h"

namespace weft::grammar {
namespace {

using core::check;
using core::ConfigError;

// Compiling takes time and stack by both.
constexpr int kMostGroups = 100;
constexpr int64_t kMostRepeats = 1'000'000;

constexpr std::array<std::string_view, 6> kFunctions = {"TagDispatch",      "Token", "ExcludeToken",
                                                        "TokenTagDispatch", "Regex", "Substring"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_of_name(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '-' || c == '.'; }

// Walks through a source; what both forms have in common.
class Scan {
 public:
  explicit Scan(std::string_view text) : text_(text) {}

  bool is_at_end() const { return place_ >= text_.size(); }
  char peek(size_t ahead = 0) const {
    return place_ + ahead < text_.size() ? text_[place_ + ahead] : '\0';
  }
  std::string_view rest() const { return text_.substr(std::min(place_, text_.size())); }
  void skip(size_t bytes = 1) { place_ += bytes; }

  void open() {
    check<ConfigError>(++depth_ <= kMostGroups, "grammar: groups nested deeper than ", kMostGroups);
  }
  void close() { --depth_; }
  // Counts between braces, behind the opening one.
  void read_counts() {
    while (!is_at_end() && peek() != '}') {
      int64_t count = 0;
      size_t length = 0;
      for (; is_digit(peek(length)); ++length) {
        count = std::min(count * 10 + (peek(length) - '0'), kMostRepeats + 1);
      }
      check<ConfigError>(count <= kMostRepeats, "grammar: the count ",
                         rest().substr(0, std::min<size_t>(length, 40)), ", expected at most ",
                         kMostRepeats);
      skip(std::max<size_t>(length, 1));
    }
  }

 private:
  std::string_view text_;
  size_t place_ = 0;
  int depth_ = 0;
};

// A group's name is read letter by letter, and anything else by a table of 256 letters.
void check_group_name(const Scan& scan) {
  if (!scan.rest().starts_with("(?<")) return;
  const std::string_view name = scan.rest().substr(3, scan.rest().find('>', 3) - 3);
  const bool is_lookbehind = name.starts_with('=') || name.starts_with('!');
  check<ConfigError>(is_lookbehind || std::ranges::all_of(name, is_letter),
                     "grammar: the name of a group, expected ASCII letters");
}

bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// At a backslash. Of \x any number of digits would be read, and of \U numbers that no character
// has.
void skip_escape(Scan& scan) {
  const char kind = scan.peek(1);
  const std::string_view rest = scan.rest();
  size_t digits = 0;
  while ((kind == 'x' || kind == 'U') && is_hex(scan.peek(2 + digits))) ++digits;
  const std::string shown =
      core::quote(std::string(rest.substr(0, 2 + std::min<size_t>(digits, 10))));
  check<ConfigError>(kind != 'x' || digits == 2, "grammar: ", shown,
                     ", expected two digits; write ",
                     "a character with others behind it as \\uHHHH");
  constexpr uint32_t kLastCharacter = 0x10FFFF;
  uint32_t code = 0;
  if (kind == 'U' && digits >= 8) std::from_chars(rest.data() + 2, rest.data() + 10, code, 16);
  check<ConfigError>(code <= kLastCharacter, "grammar: ", shown, ", expected at most \\U0010FFFF");
  scan.skip(2);
}

// Behind the end of what an opening quote or bracket begins, or the source's.
template <class SkipEscape>
void skip_to(char end, Scan& scan, const SkipEscape& escape) {
  while (!scan.is_at_end() && scan.peek() != end) {
    scan.peek() == '\\' ? escape(scan) : scan.skip();
  }
  scan.skip();
}

void skip_regex_escape(Scan& scan) {
  check<ConfigError>(scan.peek(1) != 'c',
                     "grammar: \\c is not supported; write the character as \\xHH");
  skip_escape(scan);
}

// Behind a name of GBNF: what is no GBNF.
void check_name(std::string_view name, const Scan& scan, bool begins_line) {
  check<ConfigError>(std::ranges::find(kFunctions, name) == kFunctions.end(),
                     "grammar: the rule's name ", core::quote(std::string(name)),
                     ", expected one that is no function of xgrammar's");
  if (!begins_line || scan.peek() != '[') return;
  const std::string_view line = scan.rest().substr(0, scan.rest().find_first_of("\r\n"));
  check<ConfigError>(line.find("::=") == std::string_view::npos, "grammar: attributes of the rule ",
                     core::quote(std::string(name)), " are not supported; leave them out");
}

}  // namespace

void check_regex(const std::string& text) {
  Scan scan(text);
  while (!scan.is_at_end()) {
    const char c = scan.peek();
    if (c == '\\') {
      skip_regex_escape(scan);
    } else if (c == '[') {
      skip_to(']', scan, skip_regex_escape);
    } else {
      if (c == '(') check_group_name(scan), scan.open();
      if (c == ')') scan.close();
      scan.skip();
      if (c == '{') scan.read_counts();
    }
  }
}

void check_gbnf(const std::string& text) {
  check<ConfigError>(text.find('\0') == std::string::npos,
                     "grammar: a NUL character, expected text; write it as \\x00");
  Scan scan(text);
  bool begins_line = true;
  while (!scan.is_at_end()) {
    const char c = scan.peek();
    if (is_letter(c) || c == '_' || c == '-' || c == '.') {
      size_t length = 0;
      while (is_of_name(scan.peek(length))) ++length;
      const std::string_view name = scan.rest().substr(0, length);
      scan.skip(length);
      check_name(name, scan, begins_line);
      begins_line = false;
      continue;
    }
    check<ConfigError>(!scan.rest().starts_with("(="), "grammar: a lookahead (= is not supported");
    if (c == '(') scan.open();
    if (c == ')') scan.close();
    scan.skip();
    if (c == '#') scan.skip(std::min(scan.rest().find_first_of("\r\n"), scan.rest().size()));
    if (c == '"') skip_to('"', scan, skip_escape);
    if (c == '[') skip_to(']', scan, skip_escape);
    if (c == '{') scan.read_counts();
    begins_line = c == '\n' || c == '\r' || (begins_line && (c == ' ' || c == '\t'));
  }
}

}  // namespace weft::grammar
