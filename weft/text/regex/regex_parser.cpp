#include "weft/text/regex/regex_parser.h"

#include "weft/core/error.h"
#include "weft/text/unicode/unicode.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text {

using Kind = RegexNode::Kind;
using Greed = RegexNode::Greed;

namespace {

constexpr size_t kMaxPattern = 20'000;
constexpr int kMaxDepth = 50;
constexpr uint32_t kMaxRepeat = 1000;

char32_t other_case(char32_t code) {
  if (code >= 'a' && code <= 'z') return code - 32;
  return code >= 'A' && code <= 'Z' ? code + 32 : code;
}

// Without case: an ASCII letter, and the two other characters that fold to one.
CharSet folded(char32_t code) {
  CharSet set;
  set.add(code);
  set.add(other_case(code));
  const char32_t lower = code >= 'A' && code <= 'Z' ? code + 32 : code;
  if (lower == 's') set.add(0x17F);
  if (lower == 'k') set.add(0x212A);
  return set;
}

class Parser {
 public:
  Parser(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {
    if (pattern.empty() || pattern.size() > kMaxPattern) refuse("expected 1 to 20000 bytes");
    if (!is_valid_utf8(pattern)) refuse("expected UTF-8");
    for (std::string_view rest = pattern; !rest.empty();) {
      const Utf8Step step = utf8_step(rest);
      codes_.push_back(step.code);
      rest.remove_prefix(step.size);
    }
  }

  RegexNode parse() {
    RegexNode node = alternatives();
    if (!at_end()) refuse("unexpected )");
    return node;
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    refuse_regex(pattern_, where_, problem);
  }

  bool at_end() const { return at_ == codes_.size(); }
  // 0 after the end; no pattern holds a NUL, because next() refuses it.
  char32_t peek(size_t ahead = 0) const {
    return at_ + ahead < codes_.size() ? codes_[at_ + ahead] : 0;
  }
  char32_t next() {
    const char32_t code = peek();
    if (code == 0) refuse("unexpected end");
    ++at_;
    return code;
  }
  bool take(std::string_view text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (peek(i) != static_cast<unsigned char>(text[i])) return false;
    }
    at_ += text.size();
    return true;
  }
  void expect(char c) {
    if (!take(std::string_view(&c, 1))) refuse(core::join("expected ", c));
  }

  RegexNode alternatives() {
    if (++depth_ > kMaxDepth) refuse("groups are nested too deep");
    RegexNode node;
    node.kind = Kind::kAlternatives;
    do {
      node.children.push_back(sequence());
    } while (take("|"));
    --depth_;
    return node;
  }

  RegexNode sequence() {
    RegexNode node;
    char32_t last_letter = 0;
    while (!at_end() && peek() != '|' && peek() != ')') {
      const char32_t letter = ignores_case_ ? peek() | 0x20 : 0;
      check_fold(last_letter, letter);
      last_letter = letter;
      node.children.push_back(repeated(atom()));
    }
    return node;
  }

  // Without case, two letters can also match one character, a ligature.
  void check_fold(char32_t last, char32_t letter) const {
    const bool is_ligature = (last == 's' && (letter == 's' || letter == 't')) ||
                             (last == 'f' && (letter == 'f' || letter == 'i' || letter == 'l'));
    if (is_ligature) refuse("letters that a ligature folds to are not supported in (?i:");
  }

  RegexNode repeated(RegexNode atom) {
    for (int nesting = 1;; ++nesting) {
      RegexNode node;
      node.kind = Kind::kRepeat;
      bool is_counted = false;
      if (take("?")) {
        node.max = 1;
      } else if (take("*")) {
        node.max = kUnbounded;
      } else if (take("+")) {
        node.min = 1;
        node.max = kUnbounded;
      } else if (peek() == '{') {
        counts(node);
        is_counted = true;
      } else {
        return atom;
      }
      if (atom.is_nullable()) refuse("repeats what can be empty");
      if (nesting > kMaxDepth) refuse("repetitions are nested too deep");
      if (take("?")) {
        if (is_counted) refuse("{}? is not supported");
        node.greed = Greed::kLazy;
      } else if (peek() == '+') {
        if (is_counted) refuse("{}+ is not supported");
        if (atom.kind != Kind::kSet) refuse("possessive groups are not supported");
        expect('+');
        node.greed = Greed::kPossessive;
      }
      node.children.push_back(std::move(atom));
      atom = std::move(node);
    }
  }

  uint32_t number() {
    uint32_t value = 0;
    if (peek() < '0' || peek() > '9') refuse("expected a number in {}");
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (next() - '0');
      if (value > kMaxRepeat) refuse("expected at most 1000 repetitions");
    }
    return value;
  }

  void counts(RegexNode& node) {
    expect('{');
    node.min = peek() == ',' ? 0 : number();
    node.max = node.min;
    if (take(",")) node.max = peek() == '}' ? kUnbounded : number();
    expect('}');
    if (node.max < node.min || node.max == 0) refuse("repeats backwards or never");
  }

  RegexNode atom() {
    const char32_t code = next();
    switch (code) {
      case '(':
        return group();
      case '[':
        return set_node(char_class());
      case '.': {
        CharSet newline;
        newline.add('\n');
        return set_node(newline.negated());
      }
      case '^':
        return assertion(Kind::kLineBegin);
      case '$':
        return assertion(Kind::kLineEnd);
      case '\\':
        return escape();
      case '*':
      case '+':
      case '?':
      case '{':
        refuse("nothing to repeat");
      default:
        return literal(code);
    }
  }

  static RegexNode set_node(CharSet set) {
    RegexNode node;
    node.kind = Kind::kSet;
    node.set = std::move(set);
    node.set.finish();
    return node;
  }
  static RegexNode assertion(Kind kind) {
    RegexNode node;
    node.kind = kind;
    return node;
  }

  RegexNode literal(char32_t code) const {
    if (ignores_case_ && code >= 128) refuse("only ASCII is supported in (?i:");
    if (ignores_case_) return set_node(folded(code));
    CharSet set;
    set.add(code);
    return set_node(std::move(set));
  }

  RegexNode group() {
    const bool outer = ignores_case_;
    RegexNode node;
    if (take("?i:")) {
      ignores_case_ = true;
    } else if (take("?=") || take("?!") || take("?<=") || take("?<!")) {
      return look_around();
    } else if (!take("?:") && peek() == '?') {
      refuse("this kind of group is not supported");
    }
    node = alternatives();
    expect(')');
    ignores_case_ = outer;
    return node;
  }

  RegexNode look_around() {
    RegexNode node = assertion(codes_[at_ - 2] == '<' ? Kind::kBehind : Kind::kAhead);
    node.is_negated = codes_[at_ - 1] == '!';
    RegexNode inside = atom();
    if (inside.kind != Kind::kSet) refuse("look-around of other than one character");
    expect(')');
    node.set = std::move(inside.set);
    return node;
  }

  RegexNode escape() {
    if (take("A")) return assertion(Kind::kTextBegin);
    if (take("z")) return assertion(Kind::kTextEnd);
    char32_t code = 0;
    CharSet set = escaped(code);
    return code != 0 ? literal(code) : set_node(std::move(set));
  }

  // Reads what follows a backslash: sets `code` if it is one character, else returns a set.
  CharSet escaped(char32_t& code) {
    const char32_t letter = next();
    switch (letter) {
      case 'p':
      case 'P':
        return property(letter == 'P');
      case 's':
        return CharSet::of_class(kSpace);
      case 'S':
        return CharSet::of_class(kSpace).negated();
      case 'd':
        return CharSet::of_property("Nd");
      case 'D':
        return CharSet::of_property("Nd").negated();
      case 'x':
      case 'u':
        code = hex_code(letter == 'u' ? 4 : 2);
        return {};
      default:
        code = simple_escape(letter);
        return {};
    }
  }

  char32_t simple_escape(char32_t letter) const {
    constexpr std::string_view kLetters = "nrtfvae", kCodes = "\n\r\t\f\v\a\x1b";
    const size_t index = letter < 128 ? kLetters.find(static_cast<char>(letter)) : kLetters.npos;
    if (index != kLetters.npos) return static_cast<unsigned char>(kCodes[index]);
    const bool is_word =
        (letter | 0x20) >= 'a' && (letter | 0x20) <= 'z' ? true : letter >= '0' && letter <= '9';
    if (is_word && letter < 128) {
      refuse(core::join("\\", static_cast<char>(letter), " is not supported"));
    }
    return letter;
  }

  char32_t hex_code(size_t digits) {
    const bool has_braces = digits == 2 && take("{");
    char32_t code = 0;
    for (size_t i = 0; has_braces ? peek() != '}' : i < digits; ++i) {
      const char32_t c = next(), lower = c | 0x20;
      const bool is_digit = c >= '0' && c <= '9';
      if (!is_digit && !(lower >= 'a' && lower <= 'f')) refuse("expected a hexadecimal digit");
      code = code * 16 + (is_digit ? c - '0' : lower - 'a' + 10);
      if (code > CharSet::kLast) refuse("expected a code point");
    }
    if (has_braces) expect('}');
    // \x80 and up are bytes, not characters.
    if (code == 0 || (digits == 2 && !has_braces && code >= 128)) refuse("\\x is not supported");
    return code;
  }

  CharSet property(bool negated) {
    expect('{');
    negated ^= take("^");
    std::string name;
    while (peek() != '}') append_utf8(name, next());
    expect('}');
    const CharSet set = CharSet::of_property(name);
    if (set.is_empty()) refuse(core::join("\\p{", name, "} is not supported"));
    return negated ? set.negated() : set;
  }

  // Behind the opening bracket.
  CharSet char_class() {
    if (++depth_ > kMaxDepth) refuse("classes are nested too deep");
    const bool negated = take("^");
    CharSet set = class_items();
    while (take("&&")) set = set.intersected(class_items());
    expect(']');
    --depth_;
    return negated ? set.negated() : set;
  }

  CharSet class_items() {
    CharSet set;
    if (peek() == ']') refuse("empty class");
    while (peek() != ']' && !(peek() == '&' && peek(1) == '&')) class_item(set);
    return set;
  }

  void class_item(CharSet& set) {
    if (peek() == '[' && peek(1) == ':') refuse("POSIX classes are not supported");
    if (take("[")) {
      set.add(char_class());
      return;
    }
    char32_t first = next();
    if (first == '\\') {
      first = 0;
      set.add(escaped(first));
      if (first == 0) return;
    }
    char32_t last = first;
    if (peek() == '-' && peek(1) != ']') {
      expect('-');
      last = next();
      if (last == '[') refuse("a class cannot end a range");
      if (last == '\\') {
        last = 0;
        escaped(last);
      }
    }
    if (last < first) refuse("a range runs backwards");
    if (!ignores_case_) {
      set.add(first, last);
    } else if (last >= 128 || last != first) {
      refuse("only single ASCII characters are supported in classes in (?i:");
    } else {
      set.add(folded(first));
    }
  }

  std::string_view pattern_;
  const std::string& where_;
  std::vector<char32_t> codes_;
  size_t at_ = 0;
  int depth_ = 0;
  bool ignores_case_ = false;
};

}  // namespace

RegexNode parse_regex(std::string_view pattern, const std::string& where) {
  return Parser(pattern, where).parse();
}

}  // namespace weft::text
