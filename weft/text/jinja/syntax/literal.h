#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::text::jinja {

/// What the inside of a string literal stands for, with Python's escapes; nothing for a wrong one.
std::optional<std::string> unescape(std::string_view literal);

/// What a number in the text means.
struct NumberLiteral {
  /// False if the number does not fit 64 bits.
  bool ok = true;
  bool is_float = false;
  int64_t integer = 0;
  double number = 0;
  /// Bytes read.
  size_t size = 0;
};

/// The number that `text`, which begins with a digit, begins with: decimal, 0x, 0o, 0b, with a
/// fraction or an exponent, and with '_' between digits.
NumberLiteral read_number_literal(std::string_view text);

}  // namespace weft::text::jinja
