#include "weft/text/regex/regex.h"

#include <limits>

#include "weft/text/tokenizer/scanners.h"

namespace weft::text {

using Op = Regex::Instruction::Op;

/// One search through a text. What failed at a place fails there for every later start as well,
/// because nothing that an instruction asks depends on the start: so failures are kept until the
/// search has passed the place.
class RegexMatcher {
 public:
  RegexMatcher(const Regex& regex, CharSpan chars)
      : regex_(regex),
        chars_(chars),
        row_((regex.num_splits_ + 63) / 64),
        tried_((chars.size() + 1) * row_),
        runs_(regex.num_runs_) {}

  /// The end of the match at `begin`, or `begin` if there is none.
  size_t match(size_t begin) {
    // The search that ended here may have passed through splits at this place with success.
    std::fill_n(tried_.begin() + static_cast<ptrdiff_t>(begin * row_), row_, 0);
    stack_.assign(1, {0, begin});
    while (!stack_.empty()) {
      const State state = stack_.back();
      stack_.pop_back();
      const size_t end = advance(state);
      if (end != kNone) return end;
    }
    return begin;
  }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  struct State {
    uint32_t pc;
    size_t at;
  };
  struct Run {
    size_t begin = 0;
    size_t end = 0;
  };

  bool in_set(uint32_t set, size_t at) const { return regex_.sets_[set].contains(chars_[at].code); }
  bool is_newline(size_t at) const { return chars_[at].code == '\n'; }

  // The end of the longest run from `at`; runs are found once, however often they are entered.
  size_t run_end(const Regex::Instruction& step, size_t at) {
    if (step.b == 1) return at < chars_.size() && in_set(step.a, at) ? at + 1 : at;
    Run& run = runs_[step.index];
    if (at < run.begin || at >= run.end) {
      run = {at, at};
      while (run.end < chars_.size() && in_set(step.a, run.end)) ++run.end;
    }
    return run.end;
  }

  bool holds(const Regex::Instruction& step, size_t at) const {
    switch (step.op) {
      case Op::kAhead:
        return (at < chars_.size() && in_set(step.a, at)) != (step.b != 0);
      case Op::kBehind:
        return (at > 0 && in_set(step.a, at - 1)) != (step.b != 0);
      case Op::kLineBegin:
        return at == 0 || (is_newline(at - 1) && at < chars_.size());
      case Op::kLineEnd:
        return at == chars_.size() || is_newline(at);
      case Op::kTextBegin:
        return at == 0;
      default:
        return at == chars_.size();
    }
  }

  // Marks the split as tried at `at`; false if it was before.
  bool enter(uint32_t split, size_t at) {
    uint64_t& word = tried_[at * row_ + split / 64];
    const uint64_t bit = uint64_t{1} << (split % 64);
    if ((word & bit) != 0) return false;
    word |= bit;
    return true;
  }

  // Runs until failure (kNone) or the end of a match.
  size_t advance(State state) {
    for (;;) {
      const Regex::Instruction& step = regex_.program_[state.pc];
      switch (step.op) {
        case Op::kMatch:
          return state.at;
        case Op::kSet:
          if (state.at == chars_.size() || !in_set(step.a, state.at)) return kNone;
          ++state.at;
          ++state.pc;
          break;
        case Op::kRun:
          state.at = run_end(step, state.at);
          ++state.pc;
          break;
        case Op::kSplit:
          if (!enter(step.index, state.at)) return kNone;
          stack_.push_back({step.b, state.at});
          state.pc = step.a;
          break;
        case Op::kJump:
          state.pc = step.a;
          break;
        default:
          if (!holds(step, state.at)) return kNone;
          ++state.pc;
      }
    }
  }

  const Regex& regex_;
  CharSpan chars_;
  size_t row_;
  std::vector<uint64_t> tried_;
  std::vector<Run> runs_;
  std::vector<State> stack_;
};

std::vector<Regex::Match> Regex::find_all(std::string_view text) const {
  const std::vector<Char> chars = decode_chars(text);
  const auto offset = [&](size_t i) { return i < chars.size() ? chars[i].offset : text.size(); };
  RegexMatcher matcher(*this, chars);
  std::vector<Match> matches;
  for (size_t at = 0; at < chars.size();) {
    const size_t end = matcher.match(at);
    if (end > at) matches.push_back({offset(at), offset(end)});
    at = end > at ? end : at + 1;
  }
  return matches;
}

}  // namespace weft::text
