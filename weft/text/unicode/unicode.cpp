#include "weft/text/unicode/unicode.h"

#include <algorithm>
#include <array>

namespace weft::text {
namespace {

uint16_t search_class(char32_t code) {
  const auto after =
      std::upper_bound(kClassRanges.begin(), kClassRanges.end(), code,
                       [](char32_t value, const ClassRange& range) { return value < range.first; });
  return std::prev(after)->bits;
}

// Most text is in the first planes' first scripts; the table saves the search there.
constexpr size_t kDirect = 0x3000;

std::array<uint16_t, kDirect> make_direct() {
  std::array<uint16_t, kDirect> table{};
  for (size_t code = 0; code < kDirect; ++code) {
    table[code] = search_class(static_cast<char32_t>(code));
  }
  return table;
}

}  // namespace

uint16_t unicode_class(char32_t code) {
  static const std::array<uint16_t, kDirect> direct = make_direct();
  return code < kDirect ? direct[code] : search_class(code);
}

const CaseMap* find_case(char32_t code) {
  const auto it =
      std::lower_bound(kCaseMaps.begin(), kCaseMaps.end(), code,
                       [](const CaseMap& map, char32_t value) { return map.code < value; });
  return it != kCaseMaps.end() && it->code == code ? &*it : nullptr;
}

}  // namespace weft::text
