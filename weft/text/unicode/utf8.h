#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::text {

/// The character at the start of some bytes.
struct Utf8Step {
  /// The code point, or U+FFFD for bytes that are none.
  char32_t code = 0;
  /// How many bytes it takes, at least 1.
  size_t size = 0;
  bool valid = false;
  /// Not valid only because the bytes end too early.
  bool cut = false;
};

/// Decodes the first code point of `bytes`, which must not be empty. An invalid sequence takes its
/// maximal valid beginning, as the Unicode Standard recommends (section 3.9, "Substitution of
/// Maximal Subparts") and as Python and Rust do.
Utf8Step utf8_step(std::string_view bytes);

/// Appends `code` in UTF-8.
void append_utf8(std::string& out, char32_t code);

/// `bytes` with each invalid sequence replaced by U+FFFD.
std::string to_valid_utf8(std::string_view bytes);
bool is_valid_utf8(std::string_view bytes);
/// Number of code points of valid UTF-8.
size_t utf8_length(std::string_view text);

}  // namespace weft::text
