#include <map>

#include "weft/text/regex/regex.h"
#include "weft/text/regex/regex_parser.h"

namespace weft::text {

using Kind = RegexNode::Kind;
using Op = Regex::Instruction::Op;

/// Turns the parts of an expression into a program.
class RegexCompiler {
 public:
  RegexCompiler(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  Regex compile() {
    const RegexNode node = parse_regex(pattern_, where_);
    if (node.is_nullable()) refuse_regex(pattern_, where_, "matches the empty text");
    emit(node);
    add(Op::kMatch);
    return std::move(out_);
  }

 private:
  // A pattern of counted repetitions must not become a huge program, nor splits a huge table.
  static constexpr size_t kMaxProgram = 10'000, kMaxSplits = 256;
  // \P{L} alone has 700 ranges.
  static constexpr size_t kMaxRanges = 100'000;

  uint32_t here() const { return static_cast<uint32_t>(out_.program_.size()); }

  uint32_t add(Op op, uint32_t a = 0, uint32_t b = 0) {
    const bool is_small = out_.program_.size() < kMaxProgram && out_.num_splits_ <= kMaxSplits;
    if (!is_small) refuse_regex(pattern_, where_, "is too large");
    Regex::Instruction step{op, a, b, 0};
    if (op == Op::kSplit) step.index = static_cast<uint32_t>(out_.num_splits_++);
    if (op == Op::kRun) step.index = static_cast<uint32_t>(out_.num_runs_++);
    out_.program_.push_back(step);
    return here() - 1;
  }

  // Counted repetitions name the same set again and again.
  uint32_t add_set(const CharSet& set) {
    const auto [entry, is_new] = sets_.try_emplace(set, static_cast<uint32_t>(out_.sets_.size()));
    if (!is_new) return entry->second;
    num_ranges_ += set.num_ranges();
    if (num_ranges_ > kMaxRanges) refuse_regex(pattern_, where_, "is too large");
    out_.sets_.push_back(set);
    return entry->second;
  }

  void emit(const RegexNode& node) {
    switch (node.kind) {
      case Kind::kSet:
        add(Op::kSet, add_set(node.set));
        break;
      case Kind::kSequence:
        for (const RegexNode& child : node.children) emit(child);
        break;
      case Kind::kAlternatives:
        emit_alternatives(node);
        break;
      case Kind::kRepeat:
        emit_repeat(node);
        break;
      case Kind::kAhead:
        add(Op::kAhead, add_set(node.set), node.is_negated ? 1 : 0);
        break;
      case Kind::kBehind:
        add(Op::kBehind, add_set(node.set), node.is_negated ? 1 : 0);
        break;
      default:
        emit_anchor(node.kind);
    }
  }

  void emit_anchor(Kind kind) {
    if (kind == Kind::kLineBegin) add(Op::kLineBegin);
    if (kind == Kind::kLineEnd) add(Op::kLineEnd);
    if (kind == Kind::kTextBegin) add(Op::kTextBegin);
    if (kind == Kind::kTextEnd) add(Op::kTextEnd);
  }

  void emit_alternatives(const RegexNode& node) {
    std::vector<uint32_t> jumps;
    for (size_t i = 0; i + 1 < node.children.size(); ++i) {
      const uint32_t split = add(Op::kSplit);
      out_.program_[split].a = here();
      emit(node.children[i]);
      jumps.push_back(add(Op::kJump));
      out_.program_[split].b = here();
    }
    emit(node.children.back());
    for (const uint32_t jump : jumps) out_.program_[jump].a = here();
  }

  void emit_repeat(const RegexNode& node) {
    const RegexNode& child = node.children[0];
    for (uint32_t i = 0; i < node.min; ++i) emit(child);
    if (node.greed == RegexNode::Greed::kPossessive) {
      add(Op::kRun, add_set(child.set), node.max);
    } else if (node.max == kUnbounded) {
      const uint32_t split = add(Op::kSplit);
      out_.program_[split].a = here();
      emit(child);
      add(Op::kJump, split);
      close(split, node);
    } else {
      std::vector<uint32_t> splits;
      for (uint32_t i = node.min; i < node.max; ++i) {
        splits.push_back(add(Op::kSplit));
        out_.program_[splits.back()].a = here();
        emit(child);
      }
      for (const uint32_t split : splits) close(split, node);
    }
  }

  // Sets where the split goes that takes no other round: here. A lazy one tries that first.
  void close(uint32_t split, const RegexNode& node) {
    Regex::Instruction& step = out_.program_[split];
    step.b = here();
    if (node.greed == RegexNode::Greed::kLazy) std::swap(step.a, step.b);
  }

  std::string_view pattern_;
  const std::string& where_;
  std::map<CharSet, uint32_t> sets_;
  size_t num_ranges_ = 0;
  Regex out_;
};

Regex Regex::parse(std::string_view pattern, const std::string& where) {
  return RegexCompiler(pattern, where).compile();
}

}  // namespace weft::text
