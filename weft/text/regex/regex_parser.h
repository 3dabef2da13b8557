#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/text/regex/char_set.h"

namespace weft::text {

/// A part of a regular expression.
struct RegexNode {
  enum class Kind {
    kSet,
    kSequence,
    kAlternatives,
    kRepeat,
    kAhead,
    kBehind,
    kLineBegin,
    kLineEnd,
    kTextBegin,
    kTextEnd,
  };
  enum class Greed { kGreedy, kLazy, kPossessive };

  Kind kind = Kind::kSequence;
  std::vector<RegexNode> children;
  /// Of kSet, kAhead and kBehind.
  CharSet set;
  bool is_negated = false;
  /// Of kRepeat.
  uint32_t min = 0;
  uint32_t max = 0;
  Greed greed = Greed::kGreedy;

  /// True if it can match without taking a character.
  bool is_nullable() const;
};

/// No upper bound of a repetition.
inline constexpr uint32_t kUnbounded = ~uint32_t{0};

/// Parses what `Regex` understands. Throws ConfigError that shows the pattern.
RegexNode parse_regex(std::string_view pattern, const std::string& where);

/// Throws the ConfigError of a pattern that cannot be used.
[[noreturn]] void refuse_regex(std::string_view pattern, const std::string& where,
                               const std::string& problem);

}  // namespace weft::text
