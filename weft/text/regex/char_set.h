#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weft::text {

/// A set of code points.
class CharSet {
 public:
  static constexpr char32_t kLast = 0x10FFFF;

  /// Adds `first` to `last`, both included.
  void add(char32_t first, char32_t last);
  void add(char32_t code) { add(code, code); }
  void add(const CharSet& other);
  /// All others.
  CharSet negated() const;
  bool is_empty() const { return ranges_.empty(); }
  /// How much memory it takes; after `finish`, how many runs of neighbours it has.
  size_t num_ranges() const { return ranges_.size(); }
  CharSet intersected(const CharSet& other) const;
  /// To be called after the last `add`, before `contains`.
  void finish();
  bool contains(char32_t code) const {
    return code < 128 ? (ascii_[code >> 6] >> (code & 63) & 1) != 0 : contains_wide(code);
  }

  /// The code points that have any of the bits of `UnicodeClass`.
  static CharSet of_class(uint16_t mask);
  /// The code points of a general category, e.g. "L" or "Lu", or of the script "Han" (those of
  /// Hugging Face tokenizers); an empty set for any other name.
  static CharSet of_property(std::string_view name);

  /// Some order of finished sets; equal ones have the same members.
  auto operator<=>(const CharSet&) const = default;

 private:
  struct Range {
    char32_t first;
    char32_t last;
    auto operator<=>(const Range&) const = default;
  };

  bool contains_wide(char32_t code) const;
  std::vector<Range> sorted() const;

  std::vector<Range> ranges_;
  std::array<uint64_t, 2> ascii_{};
};

}  // namespace weft::text
