#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace weft::text {

/// Bits of a code point's class. The first five are what the patterns of published tokenizers ask.
enum UnicodeClass : uint16_t {
  kLetter = 1,    // \p{L}
  kMark = 2,      // \p{M}
  kNumber = 4,    // \p{N}
  kSpace = 8,     // \s
  kNumeric = 16,  // isolated by the `Digits` pre-tokenizer
  kUpper = 32,    // \p{Lu}, \p{Lt}
  kLower = 64,    // \p{Ll}
  // Isolated by the `Punctuation` pre-tokenizer.
  kPunctuation = 128,
  // Not beside an added token that is a `single_word`.
  kWord = 256,
};

/// The class bits hold from `first` up to the next entry's.
struct ClassRange {
  char32_t first;
  uint16_t bits;
};
/// The general category holds from `first` up to the next entry's: 0 for none, else one more than
/// the index into `kCategoryNames`.
struct CategoryRange {
  char32_t first;
  uint8_t category;
};
inline constexpr std::string_view kCategoryNames[] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};
/// The code points `first` to `last`, both included.
struct CharRange {
  char32_t first;
  char32_t last;
};
/// `size` code points of `kDecomposed` from `begin`: the full canonical decomposition of `code`.
struct Decomposition {
  char32_t code;
  uint16_t begin;
  uint16_t size;
};
/// `first` followed by `second` composes to `code`.
struct Composition {
  char32_t first;
  char32_t second;
  char32_t code;
};
/// Order of combining marks: a mark moves before a neighbour of a higher rank.
struct MarkRank {
  char32_t code;
  uint8_t rank;
};
/// Up to three code points each, padded with zeros.
struct CaseMap {
  char32_t code;
  char32_t upper[3];
  char32_t lower[3];
  char32_t title[3];
};

/// Generated, each sorted by its first members.
extern const std::span<const ClassRange> kClassRanges;
extern const std::span<const CategoryRange> kCategoryRanges;
/// The script Han, \p{Han}.
extern const std::span<const CharRange> kHanRanges;
extern const std::span<const Decomposition> kDecompositions;
extern const std::span<const char32_t> kDecomposed;
/// The same for the compatibility decomposition, where it is another one.
extern const std::span<const Decomposition> kCompatibilities;
extern const std::span<const char32_t> kCompatible;
extern const std::span<const Composition> kCompositions;
extern const std::span<const MarkRank> kMarkRanks;
extern const std::span<const CaseMap> kCaseMaps;

/// The class bits of `code`, 0 for unassigned ones.
uint16_t unicode_class(char32_t code);
/// The case mappings of `code`, or nullptr where all three are itself.
const CaseMap* find_case(char32_t code);

}  // namespace weft::text
