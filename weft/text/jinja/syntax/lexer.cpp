#include "weft/text/jinja/syntax/lexer.h"

#include <algorithm>
#include <cctype>

#include "weft/text/jinja/syntax/literal.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text::jinja {
namespace {

// Jinja sees only "\n" as the end of a line, and drops one at the very end.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_name_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || byte == '_' || std::isalnum(byte) != 0;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(const std::string& source, const std::string& where)
      : source_(normalize_newlines(source)), where_(where) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) read_data();
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool sees(std::string_view text) const { return rest().starts_with(text); }
  void add(TokenType type, std::string text) { tokens_.push_back({type, std::move(text), line_}); }

  // Moves on and counts lines.
  void skip(size_t size) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + at_, source_.begin() + at_ + size, '\n'));
    at_ += size;
    if (size > 0) line_start_ = source_[at_ - 1] == '\n';
  }

  size_t space_run(size_t from) const {
    size_t end = from;
    while (end < source_.size()) {
      const Utf8Step step = utf8_step(std::string_view(source_).substr(end));
      if (!is_python_space(step.code)) break;
      end += step.size;
    }
    return end - from;
  }

  // The data up to the next "{{", "{%" or "{#", stripped as the tag's sign asks.
  void read_data() {
    size_t tag = at_;
    while (tag < source_.size() && !is_tag(tag)) ++tag;
    const std::string_view data = rest().substr(0, tag - at_);
    if (tag == source_.size()) {
      add_data(data);
      return skip(data.size());
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    add_data(strip_before(data, kind, sign));
    skip(data.size());
    const bool signed_tag = sign == '-' || sign == '+';
    if (kind == '#') return read_comment();
    skip(signed_tag ? 3 : 2);
    if (kind == '%' && read_raw()) return;
    read_tag(kind == '{');
  }

  bool is_tag(size_t at) const {
    if (source_[at] != '{' || at + 1 >= source_.size()) return false;
    const char next = source_[at + 1];
    return next == '{' || next == '%' || next == '#';
  }

  void add_data(std::string_view data) {
    if (!data.empty()) add(TokenType::kData, std::string(data));
  }

  std::string_view strip_before(std::string_view data, char kind, char sign) const {
    if (sign == '-') {
      const Text stripped = strip(Text(std::string(data)), Ends::kRight);
      return data.substr(0, stripped.size());
    }
    if (sign == '+' || kind == '{') return data;
    const size_t newline = data.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !line_start_) return data;
    const bool blank = strip(Text(std::string(data.substr(begin))), Ends::kBoth).empty();
    return blank ? data.substr(0, begin) : data;
  }

  // Skips the end of a tag: with '-' the white space after it, else one newline where trimmed.
  void skip_end(size_t size, char sign, bool trims) {
    skip(size);
    if (sign == '-') {
      skip(space_run(at_));
    } else if (trims && sign != '+' && sees("\n")) {
      skip(1);
    }
  }

  void read_comment() {
    const size_t inner = at_ + (sees("{#-") || sees("{#+") ? 3 : 2);
    const size_t end = source_.find("#}", inner);
    if (end == std::string::npos) fail_at(where_, line_, "a comment is not closed; add #}");
    const char sign = end > inner ? source_[end - 1] : '\0';
    skip(end - at_);
    skip_end(2, sign, true);
  }

  // Matches `name` and the end of its tag; 0 if there is none, else the tag's size.
  size_t match_block_tag(size_t from, std::string_view name, char& sign) const {
    const std::string_view text = source_;
    size_t at = from + space_run(from);
    if (text.substr(at, name.size()) != name) return 0;
    at += name.size();
    at += space_run(at);
    sign = at < text.size() && (text[at] == '-' || text[at] == '+') ? text[at] : '\0';
    if (sign != '\0') ++at;
    return text.substr(at, 2) == "%}" ? at + 2 - from : 0;
  }

  // A raw block whose "{%" was read already: its content as data.
  bool read_raw() {
    char sign = '\0';
    const size_t head = match_block_tag(at_, "raw", sign);
    if (head == 0) return false;
    const int line = line_;
    skip_end(head, sign, false);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char open = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      const size_t inner = tag + 2 + (open == '-' || open == '+' ? 1 : 0);
      const size_t size = match_block_tag(inner, "endraw", sign);
      if (size == 0) continue;
      const std::string_view data = rest().substr(0, tag - at_);
      add_data(strip_before(data, '%', open));
      skip(inner - at_);
      skip_end(size, sign, true);
      return true;
    }
    fail_at(where_, line, "a raw block is not closed; add {% endraw %}");
  }

  void read_tag(bool variable) {
    const int line = line_;
    add(variable ? TokenType::kVariableBegin : TokenType::kBlockBegin, variable ? "{{" : "{%");
    std::string open_brackets;
    for (;;) {
      skip(space_run(at_));
      if (at_ == source_.size()) {
        fail_at(where_, line, "a tag is not closed; add ", variable ? "}}" : "%}");
      }
      if (open_brackets.empty() && read_tag_end(variable)) return;
      read_token(open_brackets);
    }
  }

  bool read_tag_end(bool variable) {
    const std::string_view end = variable ? "}}" : "%}";
    const char sign =
        source_[at_] == '-' || (source_[at_] == '+' && !variable) ? source_[at_] : '\0';
    const size_t skipped = sign != '\0' ? 1 : 0;
    if (rest().substr(skipped, 2) != end) return false;
    add(variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, std::string(end));
    skip_end(skipped + 2, sign, !variable);
    return true;
  }

  void read_token(std::string& open_brackets) {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return read_string(c);
    if (is_digit(c)) return read_number();
    if (is_name_byte(c)) return read_name();
    read_operator(open_brackets);
  }

  void read_string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(where_, line_, "a string is not closed; add ", quote);
    const std::string_view inner = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
    const auto text = unescape(inner);
    if (!text) fail_at(where_, line_, "a string has a wrong \\x, \\u, \\U or \\N escape");
    add(TokenType::kString, *text);
    skip(end + 1 - at_);
  }

  void read_name() {
    size_t end = at_;
    while (end < source_.size() && is_name_byte(source_[end])) ++end;
    add(TokenType::kName, source_.substr(at_, end - at_));
    skip(end - at_);
  }

  void read_number() {
    const NumberLiteral number = read_number_literal(rest());
    if (!number.ok) fail_at(where_, line_, "a number is too large for 64 bits");
    add(number.is_float ? TokenType::kFloat : TokenType::kInteger,
        std::string(rest().substr(0, number.size)));
    tokens_.back().integer = number.integer;
    tokens_.back().number = number.number;
    skip(number.size);
  }

  void read_operator(std::string& open_brackets) {
    constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                               "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                               ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](std::string_view op) { return sees(op); });
    if (found == std::end(kOperators)) {
      const std::string_view character = rest().substr(0, utf8_step(rest()).size);
      fail_at(where_, line_, "unexpected character '", character, "'");
    }
    track_bracket((*found)[0], open_brackets);
    add(TokenType::kOperator, std::string(*found));
    skip(found->size());
  }

  // Inside brackets "}}" and "%}" do not end a tag.
  void track_bracket(char c, std::string& open_brackets) const {
    if (c == '(' || c == '[' || c == '{') {
      open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty()) fail_at(where_, line_, "unexpected '", c, "'");
      if (open_brackets.back() != c) {
        fail_at(where_, line_, "unexpected '", c, "', expected '", open_brackets.back(), "'");
      }
      open_brackets.pop_back();
    }
  }

  std::string source_;
  const std::string& where_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(const std::string& source, const std::string& where) {
  return Lexer(source, where).run();
}

}  // namespace weft::text::jinja
