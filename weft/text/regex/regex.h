#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/regex/char_set.h"

namespace weft::text {

/// The regular expressions of published tokenizers, matched as Hugging Face tokenizers does it:
/// Oniguruma's syntax and order of attempts, and the Unicode tables of that package. Time is linear
/// in the text, whatever the pattern: no state is tried twice at one place. Immutable.
///
/// Understood: literals, classes (ranges, negation, nesting, &&), \p{category}, \s \d and their
/// negations, groups, (?i:...) over ASCII letters, alternatives, greedy, lazy and possessive
/// repetition, look-around of one character, line and text anchors.
class Regex {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
  };

  /// Throws ConfigError, with the pattern, for what is not understood and for patterns that match
  /// nothing at all somewhere; `where` begins the message.
  static Regex parse(std::string_view pattern, const std::string& where);

  /// The matches in valid UTF-8 from left to right, as byte offsets.
  std::vector<Match> find_all(std::string_view text) const;

  /// One step of the compiled pattern.
  struct Instruction {
    enum class Op : uint8_t {
      kSet,        // one character of set `a`
      kRun,        // as many characters of set `a` as there are, at most `b`; never fewer
      kSplit,      // first `a`, on failure `b`; `index` numbers the splits
      kJump,       // to `a`
      kAhead,      // the next character is in set `a` (b: or must not be)
      kBehind,     // the same of the last one
      kLineBegin,  // ^
      kLineEnd,    // $
      kTextBegin,  // \A
      kTextEnd,    // \z
      kMatch,
    };
    Op op = Op::kMatch;
    uint32_t a = 0;
    uint32_t b = 0;
    uint32_t index = 0;
  };

 private:
  friend class RegexCompiler;
  friend class RegexMatcher;

  std::vector<Instruction> program_;
  std::vector<CharSet> sets_;
  size_t num_splits_ = 0;
  size_t num_runs_ = 0;
};

}  // namespace weft::text
