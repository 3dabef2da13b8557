#include "weft/text/jinja/syntax/literal.h"

#include <charconv>
#include <cmath>

#include "weft/text/unicode/utf8.h"

namespace weft::text::jinja {
namespace {

bool is_decimal(char c) { return c >= '0' && c <= '9'; }

// Reads `size` digits of the base from `at`; nothing if there are fewer.
std::optional<char32_t> read_digits(std::string_view text, size_t at, size_t size, int base) {
  if (at + size > text.size()) return std::nullopt;
  uint32_t code = 0;
  const char* end = text.data() + at + size;
  const auto result = std::from_chars(text.data() + at, end, code, base);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return code;
}

// Appends a code point given by `size` hexadecimal digits after "\x" and moves past them.
bool append_hex(std::string_view text, size_t& at, size_t size, std::string& out) {
  const auto code = read_digits(text, at, size, 16);
  if (!code || *code > 0x10FFFF) return false;
  // A lone surrogate is no character.
  append_utf8(out, *code >= 0xD800 && *code < 0xE000 ? 0xFFFD : *code);
  at += size;
  return true;
}

void append_octal(std::string_view text, size_t& at, std::string& out) {
  char32_t code = 0;
  for (size_t i = 0; i < 3 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i) {
    code = code * 8 + (text[at++] - '0');
  }
  append_utf8(out, code);
}

// Reads the escape whose letter is at `at` and moves past it. False for a wrong one.
bool append_escape(std::string_view text, size_t& at, std::string& out) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  const char letter = text[at];
  if (letter >= '0' && letter <= '7') {
    append_octal(text, at, out);
    return true;
  }
  ++at;
  if (letter == 'x') return append_hex(text, at, 2, out);
  if (letter == 'u') return append_hex(text, at, 4, out);
  if (letter == 'U') return append_hex(text, at, 8, out);
  if (letter == 'N') return false;
  if (letter == '\n') return true;
  const size_t known = kLetters.find(letter);
  if (known == std::string_view::npos) {
    out += {'\\', letter};
  } else {
    out += kMeanings[known];
  }
  return true;
}

// The end of digits of a base with single '_' between them.
size_t digits_end(std::string_view text, size_t at, int base) {
  const auto is_base_digit = [base](char c) {
    if (base <= 10) return c >= '0' && c < '0' + base;
    return is_decimal(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  for (;;) {
    const size_t skipped = at < text.size() && text[at] == '_' ? 1 : 0;
    if (at + skipped >= text.size() || !is_base_digit(text[at + skipped])) return at;
    at += skipped + 1;
  }
}

int base_of(std::string_view text) {
  if (text.size() < 3 || text[0] != '0') return 10;
  switch (text[1]) {
    case 'x':
    case 'X':
      return 16;
    case 'o':
    case 'O':
      return 8;
    case 'b':
    case 'B':
      return 2;
    default:
      return 10;
  }
}

std::string without_underscores(std::string_view text) {
  std::string out(text);
  std::erase(out, '_');
  return out;
}

// Where a fraction and an exponent that begin at `at` end, or `at`.
size_t float_end(std::string_view text, size_t at) {
  size_t end = at;
  if (end + 1 < text.size() && text[end] == '.' && is_decimal(text[end + 1])) {
    end = digits_end(text, end + 1, 10);
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (exponent < text.size() && is_decimal(text[exponent])) end = digits_end(text, exponent, 10);
  }
  return end;
}

}  // namespace

std::optional<std::string> unescape(std::string_view literal) {
  std::string out;
  for (size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\' || at + 1 == literal.size()) {
      out += literal[at++];
      continue;
    }
    ++at;
    if (!append_escape(literal, at, out)) return std::nullopt;
  }
  return out;
}

NumberLiteral read_number_literal(std::string_view text) {
  NumberLiteral literal;
  const int base = base_of(text);
  if (base != 10) {
    const size_t end = digits_end(text, 2, base);
    if (end > 2) {
      const std::string digits = without_underscores(text.substr(2, end - 2));
      literal.size = end;
      literal.ok =
          std::from_chars(digits.data(), digits.data() + digits.size(), literal.integer, base).ec ==
          std::errc();
      return literal;
    }
  }
  const size_t whole = digits_end(text, 0, 10);
  literal.size = float_end(text, whole);
  literal.is_float = literal.size > whole;
  const std::string digits = without_underscores(text.substr(0, literal.size));
  const char *begin = digits.data(), *end = begin + digits.size();
  if (literal.is_float) {
    const auto result = std::from_chars(begin, end, literal.number);
    if (result.ec == std::errc::result_out_of_range) literal.number = HUGE_VAL;
  } else {
    literal.ok = std::from_chars(begin, end, literal.integer).ec == std::errc();
  }
  return literal;
}

}  // namespace weft::text::jinja
