#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "weft/text/unicode/unicode.h"

namespace weft::text {

/// One character of a text with its class.
struct Char {
  size_t offset;
  char32_t code;
  uint16_t bits;

  /// True if any of the class bits is set.
  bool is(uint16_t mask) const { return (bits & mask) != 0; }
};

using CharSpan = std::span<const Char>;

/// The characters of valid UTF-8.
std::vector<Char> decode_chars(std::string_view text);

// Each scanner returns the end of the piece that its regular expression matches at `begin`, which
// must be below the size. The expressions match any text without gaps, and every scanner is linear
// over a whole text: a run is looked at a fixed number of times.

/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
size_t scan_gpt2(CharSpan chars, size_t begin);

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max_digits}|
///  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t scan_llama3(CharSpan chars, size_t begin, size_t max_digits);

/// The same with words of [\p{L}\p{M}] and symbols of [^\s\p{L}\p{M}\p{N}], digit by digit.
size_t scan_qwen35(CharSpan chars, size_t begin);

/// What the patterns of this family differ in.
struct CasedOptions {
  size_t max_digits = 3;
  /// An English contraction stays with its word.
  bool contractions = true;
};

/// With U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], l = [\p{Ll}\p{Lm}\p{Lo}\p{M}] and
/// C = (?i:'s|'t|'re|'ve|'m|'ll|'d)? where contractions are on:
/// [^\r\n\p{L}\p{N}]?U*l+C|[^\r\n\p{L}\p{N}]?U+l*C|\p{N}{1,max_digits}|
///  ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
size_t scan_cased(CharSpan chars, size_t begin, const CasedOptions& options);

}  // namespace weft::text
