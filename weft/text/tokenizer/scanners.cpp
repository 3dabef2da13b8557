#include "weft/text/tokenizer/scanners.h"

#include <algorithm>

#include "weft/text/unicode/utf8.h"

namespace weft::text {
namespace {

constexpr uint16_t kWordOrSpace = kLetter | kNumber | kSpace;

bool is_newline(const Char& c) { return c.code == '\r' || c.code == '\n'; }
bool is_other(const Char& c) { return !c.is(kWordOrSpace); }

template <class Predicate>
size_t run_end(CharSpan chars, size_t begin, Predicate predicate) {
  while (begin < chars.size() && predicate(chars[begin])) ++begin;
  return begin;
}

size_t run_of(CharSpan chars, size_t begin, uint16_t mask) {
  return run_end(chars, begin, [mask](const Char& c) { return c.is(mask); });
}

// Lower case of an ASCII letter; U+017F is the only other character that folds to one of the
// letters of a contraction.
char32_t fold(char32_t code) {
  if (code == 0x17F) return 's';
  return code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
}

// The end of a contraction at `begin`, or `begin`.
size_t contraction_end(CharSpan chars, size_t begin, bool any_case) {
  const auto letter = [&](size_t i) -> char32_t {
    if (i >= chars.size()) return 0;
    return any_case ? fold(chars[i].code) : chars[i].code;
  };
  if (begin >= chars.size() || chars[begin].code != '\'') return begin;
  const char32_t first = letter(begin + 1), second = letter(begin + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return begin + 3;
  if (first == 'l' && second == 'l') return begin + 3;
  return begin;
}

// \s+(?!\S)|\s+ : the last space of a run belongs to the word after it.
size_t space_end(CharSpan chars, size_t begin) {
  const size_t end = run_of(chars, begin, kSpace);
  return end < chars.size() && end - begin >= 2 ? end - 1 : end;
}

// \s*[\r\n]+|\s+(?!\S)|\s+
size_t newline_or_space_end(CharSpan chars, size_t begin) {
  for (size_t i = run_of(chars, begin, kSpace); i > begin; --i) {
    if (is_newline(chars[i - 1])) return i;
  }
  return space_end(chars, begin);
}

//  ?[^\s\p{L}\p{N}]+ followed by any of \r, \n and `extra`; or `begin`. Characters of `words` are
// no symbols either.
size_t symbols_end(CharSpan chars, size_t begin, char32_t extra, uint16_t words = 0) {
  const size_t start = begin + (chars[begin].code == ' ' ? 1 : 0);
  const size_t end =
      run_end(chars, start, [words](const Char& c) { return !c.is(kWordOrSpace | words); });
  if (end == start) return begin;
  return run_end(chars, end, [extra](const Char& c) { return is_newline(c) || c.code == extra; });
}

size_t digits_end(CharSpan chars, size_t begin, size_t max_digits) {
  // Looking no farther keeps a long run of digits linear.
  return run_of(chars.first(std::min(chars.size(), begin + max_digits)), begin, kNumber);
}

// What may stand before the letters of a word: [^\r\n\p{L}\p{N}].
bool is_word_prefix(const Char& c) { return !is_newline(c) && !c.is(kLetter | kNumber); }

// Letters without case, and marks, count as both.
bool is_upper(const Char& c) { return c.is(kLetter | kMark) && !c.is(kLower); }
bool is_lower(const Char& c) { return c.is(kLetter | kMark) && !c.is(kUpper); }

// U*l+ at `begin`, or `begin`. When no lower-case letter follows the upper ones, the last caseless
// one of them takes its place.
size_t upper_then_lower_end(CharSpan chars, size_t begin) {
  const size_t upper = run_end(chars, begin, is_upper);
  const size_t lower = run_end(chars, upper, is_lower);
  if (lower > upper) return lower;
  for (size_t i = upper; i > begin; --i) {
    if (is_lower(chars[i - 1])) return i;
  }
  return begin;
}

size_t upper_word_end(CharSpan chars, size_t begin) {
  const size_t upper = run_end(chars, begin, is_upper);
  return upper == begin ? begin : run_end(chars, upper, is_lower);
}

// A word by `scan`, with a prefix if one fits, else without; or `begin`.
template <class Scan>
size_t prefixed_end(CharSpan chars, size_t begin, Scan scan) {
  if (is_word_prefix(chars[begin])) {
    const size_t end = scan(chars, begin + 1);
    if (end > begin + 1) return end;
  }
  return scan(chars, begin);
}

}  // namespace

std::vector<Char> decode_chars(std::string_view text) {
  std::vector<Char> chars;
  chars.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = utf8_step(text.substr(offset));
    chars.push_back({offset, step.code, unicode_class(step.code)});
    offset += step.size;
  }
  return chars;
}

size_t scan_gpt2(CharSpan chars, size_t begin) {
  if (const size_t end = contraction_end(chars, begin, false); end > begin) return end;
  const size_t start = begin + (chars[begin].code == ' ' ? 1 : 0);
  if (start < chars.size()) {
    const Char& first = chars[start];
    if (first.is(kLetter)) return run_of(chars, start, kLetter);
    if (first.is(kNumber)) return run_of(chars, start, kNumber);
    if (is_other(first)) return run_end(chars, start, is_other);
  }
  return space_end(chars, begin);
}

size_t scan_llama3(CharSpan chars, size_t begin, size_t max_digits) {
  if (const size_t end = contraction_end(chars, begin, true); end > begin) return end;
  const size_t word = begin + (is_word_prefix(chars[begin]) ? 1 : 0);
  if (const size_t end = run_of(chars, word, kLetter); end > word) return end;
  if (chars[begin].is(kNumber)) return digits_end(chars, begin, max_digits);
  if (const size_t end = symbols_end(chars, begin, '\n'); end > begin) return end;
  return newline_or_space_end(chars, begin);
}

size_t scan_qwen35(CharSpan chars, size_t begin) {
  if (const size_t end = contraction_end(chars, begin, true); end > begin) return end;
  const auto word_end = [](CharSpan all, size_t start) {
    return run_of(all, start, kLetter | kMark);
  };
  if (const size_t end = prefixed_end(chars, begin, word_end); end > begin) return end;
  if (chars[begin].is(kNumber)) return begin + 1;
  if (const size_t end = symbols_end(chars, begin, '\n', kMark); end > begin) return end;
  return newline_or_space_end(chars, begin);
}

size_t scan_cased(CharSpan chars, size_t begin, const CasedOptions& options) {
  size_t word = prefixed_end(chars, begin, upper_then_lower_end);
  if (word == begin) word = prefixed_end(chars, begin, upper_word_end);
  if (word > begin) return options.contractions ? contraction_end(chars, word, true) : word;
  if (chars[begin].is(kNumber)) return digits_end(chars, begin, options.max_digits);
  if (const size_t end = symbols_end(chars, begin, '/'); end > begin) return end;
  return newline_or_space_end(chars, begin);
}

}  // namespace weft::text
