#include "weft/serve/chat/literal.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/chat/call_marks.h"

namespace weft::serve {
namespace {

constexpr int kMostNested = 64;

// All bytes of characters beyond ASCII count as letters.
bool is_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalnum(byte) != 0 || byte >= 0x80 || c == '_' || c == '-' || c == '.' || c == '+';
}

// Numbers and the names of values.
std::optional<std::string> plain_value(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null" || word == "none") return "null";
  if (word.empty() || word.find_first_not_of("+-.eE0123456789") != word.npos) return std::nullopt;
  try {
    core::parse_json(word, "number");
  } catch (const core::FormatError&) {
    return std::nullopt;
  }
  return std::string(word);
}

std::optional<text::ToolCall> python_call(LiteralReader& reader) {
  text::ToolCall call{"", std::string(reader.word()), "{"};
  if (call.name.empty() || !reader.skip("(")) return std::nullopt;
  bool is_first = true;
  while (!reader.skip(")")) {
    if (!is_first && !reader.skip(",")) return std::nullopt;
    if (!is_first && reader.skip(")")) break;
    const std::string name(reader.word());
    if (name.empty() || !reader.skip("=")) return std::nullopt;
    const auto value = reader.value();
    if (!value) return std::nullopt;
    call.arguments += core::join(is_first ? "" : ", ", core::dump_json(name), ": ", *value);
    is_first = false;
  }
  call.arguments += "}";
  return call;
}

}  // namespace

void LiteralReader::skip_space() {
  while (at_ < text_.size() && kCallSpace.find(text_[at_]) != kCallSpace.npos) ++at_;
}

bool LiteralReader::skip(std::string_view token) {
  skip_space();
  if (!text_.substr(at_).starts_with(token)) return false;
  at_ += token.size();
  return true;
}

bool LiteralReader::is_at_end() {
  skip_space();
  return at_ == text_.size();
}

std::string_view LiteralReader::word() {
  skip_space();
  const size_t begin = at_;
  while (at_ < text_.size() && is_word(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
}

std::optional<std::string> LiteralReader::value() {
  if (depth_ >= kMostNested) return std::nullopt;
  ++depth_;
  std::optional<std::string> result;
  if (skip("[")) {
    result = list("]");
  } else if (skip("(")) {
    result = list(")");
  } else if (skip("{")) {
    result = object();
  } else {
    result = is_at_quote() ? text_value() : plain_value(word());
  }
  --depth_;
  return result;
}

bool LiteralReader::is_at_quote() {
  skip_space();
  const std::string_view rest = text_.substr(at_);
  return rest.starts_with('"') || rest.starts_with('\'') ||
         (!quote_.empty() && rest.starts_with(quote_));
}

// A text in quotes of any kind; none where they are not closed.
std::optional<std::string> LiteralReader::text_value() {
  if (!quote_.empty() && skip(quote_)) {
    const size_t end = text_.find(quote_, at_);
    if (end == text_.npos) return std::nullopt;
    const std::string_view text = text_.substr(at_, end - at_);
    at_ = end + quote_.size();
    return core::dump_json(std::string(text));
  }
  if (skip("\"")) return escaped('"');
  if (skip("'")) return escaped('\'');
  return std::nullopt;
}

std::optional<std::string> LiteralReader::escaped(char quote) {
  std::string text;
  while (at_ < text_.size() && text_[at_] != quote) {
    const char c = text_[at_++];
    if (c != '\\') {
      text += c;
    } else if (!add_escape(text)) {
      return std::nullopt;
    }
  }
  if (at_ == text_.size()) return std::nullopt;
  ++at_;
  return core::dump_json(text);
}

// What follows a backslash. One before any other character stays, as in Python.
bool LiteralReader::add_escape(std::string& text) {
  if (at_ == text_.size()) return false;
  const char c = text_[at_++];
  constexpr std::string_view kNames = "ntrbf\\'\"/", kMeant = "\n\t\r\b\f\\'\"/";
  if (const size_t found = kNames.find(c); found != kNames.npos) {
    text += kMeant[found];
    return true;
  }
  const size_t digits = c == 'u' ? 4 : 0;
  if (digits == 0) {
    text += std::string("\\") + c;
    return true;
  }
  // Halves of a pair of surrogates are left to the JSON library.
  size_t end = at_ + digits;
  if (text_.substr(std::min(end, text_.size())).starts_with("\\u")) end += 2 + digits;
  for (const size_t stop : {end, at_ + digits}) {
    if (stop > text_.size()) continue;
    const std::string quoted = core::join("\"\\u", text_.substr(at_, stop - at_), "\"");
    const auto parsed = nlohmann::json::parse(quoted, nullptr, false);
    if (!parsed.is_string()) continue;
    text += parsed.get<std::string>();
    at_ = stop;
    return true;
  }
  return false;
}

std::optional<std::string> LiteralReader::list(std::string_view end) {
  std::string items = "[";
  bool is_first = true;
  while (!skip(end)) {
    if (!is_first && !skip(",")) return std::nullopt;
    if (!is_first && skip(end)) break;
    const auto item = value();
    if (!item) return std::nullopt;
    items += core::join(is_first ? "" : ", ", *item);
    is_first = false;
  }
  return items + "]";
}

std::optional<std::string> LiteralReader::object() {
  std::string members = "{";
  bool is_first = true;
  while (!skip("}")) {
    if (!is_first && !skip(",")) return std::nullopt;
    if (!is_first && skip("}")) break;
    const auto name = key();
    if (!name || !skip(":")) return std::nullopt;
    const auto member = value();
    if (!member) return std::nullopt;
    members += core::join(is_first ? "" : ", ", *name, ": ", *member);
    is_first = false;
  }
  return members + "}";
}

std::optional<std::string> LiteralReader::key() {
  if (is_at_quote()) return text_value();
  const std::string_view name = quote_.empty() ? word() : bare_key();
  if (name.empty()) return std::nullopt;
  return core::dump_json(std::string(name));
}

// All before the colon, but for what would end or begin another part of the object.
std::string_view LiteralReader::bare_key() {
  skip_space();
  const size_t end = std::min(text_.find_first_of(":,{}[]", at_), text_.size());
  const std::string_view name = stripped(text_.substr(at_, end - at_));
  at_ = end;
  return name.find(quote_) == name.npos ? name : std::string_view();
}

std::optional<std::string> literal_json(std::string_view text) {
  LiteralReader reader(text);
  auto value = reader.value();
  return value && reader.is_at_end() ? value : std::nullopt;
}

std::optional<std::vector<text::ToolCall>> read_python_calls(std::string_view text) {
  LiteralReader reader(text);
  const bool is_list = reader.skip("[");
  std::vector<text::ToolCall> calls;
  do {
    auto call = python_call(reader);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
  } while (is_list && reader.skip(","));
  const bool is_whole = (!is_list || reader.skip("]")) && reader.is_at_end();
  return is_whole ? std::optional(calls) : std::nullopt;
}

std::optional<std::vector<text::ToolCall>> read_braced_calls(std::string_view text,
                                                             std::string_view quote) {
  LiteralReader reader(text, quote);
  std::vector<text::ToolCall> calls;
  while (!reader.is_at_end()) {
    if (!reader.skip("call:")) return std::nullopt;
    text::ToolCall call{"", std::string(reader.word()), ""};
    const auto arguments = call.name.empty() ? std::nullopt : reader.value();
    if (!arguments || !arguments->starts_with('{')) return std::nullopt;
    call.arguments = *arguments;
    calls.push_back(std::move(call));
  }
  return calls;
}

}  // namespace weft::serve
