#include <algorithm>

#include "weft/core/error.h"
#include "weft/text/regex/regex_parser.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {

using Kind = RegexNode::Kind;

bool RegexNode::is_nullable() const {
  const auto nullable = [](const RegexNode& node) { return node.is_nullable(); };
  switch (kind) {
    case Kind::kSet:
      return false;
    case Kind::kSequence:
      return std::all_of(children.begin(), children.end(), nullable);
    case Kind::kAlternatives:
      return std::any_of(children.begin(), children.end(), nullable);
    case Kind::kRepeat:
      return min == 0 || children[0].is_nullable();
    default:
      return true;
  }
}

void refuse_regex(std::string_view pattern, const std::string& where, const std::string& problem) {
  constexpr size_t kMaxShown = 400;
  std::string shown = to_valid_utf8(pattern.substr(0, kMaxShown));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  core::fail<core::ConfigError>(
      where, ": regular expression: ", problem, ", got \"", shown,
      pattern.size() > kMaxShown ? "…" : "",
      "\"; weft/text/regex/regex.h lists what weft understands, use a tokenizer of that kind");
}

}  // namespace weft::text
