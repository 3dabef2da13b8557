#include <array>
#include <charconv>
#include <cmath>

#include "weft/text/jinja/callable.h"
#include "weft/text/jinja/value.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text::jinja {
namespace {

// Namespaces may hold each other.
constexpr int kMaxReprDepth = 120;

void append_repr(std::string& out, const Value& value, int depth);

void append_string_repr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  constexpr const char* kHex = "0123456789abcdef";
  out += quote;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += {'\\', c == '\n' ? 'n' : c == '\r' ? 'r' : 't'};
    } else if (byte < 0x20 || byte == 0x7F) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  out += quote;
}

void append_list_repr(std::string& out, const List& list, int depth) {
  out += list.is_tuple ? '(' : '[';
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, list.items[i], depth);
  }
  if (list.is_tuple && list.items.size() == 1) out += ',';
  out += list.is_tuple ? ')' : ']';
}

void append_dict_repr(std::string& out, const Dict& dict, int depth) {
  out += '{';
  const char* separator = "";
  for (const auto& [key, value] : dict.entries) {
    out += separator;
    append_repr(out, key, depth);
    out += ": ";
    append_repr(out, value, depth);
    separator = ", ";
  }
  out += '}';
}

void append_namespace_repr(std::string& out, const Namespace& space, int depth) {
  out += "<Namespace {";
  const char* separator = "";
  for (const auto& [name, value] : space.attributes) {
    out += separator;
    append_string_repr(out, name);
    out += ": ";
    append_repr(out, value, depth);
    separator = ", ";
  }
  out += "}>";
}

// One text may be in a list many times, so a small value can be written as a huge text.
constexpr size_t kMaxRepr = size_t{8} << 20;

void append_repr(std::string& out, const Value& value, int depth) {
  if (depth > kMaxReprDepth) fault("a value is nested too deep to print");
  if (out.size() > kMaxRepr)
    fault("a printed value is longer than the limit of ", kMaxRepr, " bytes");
  if (const Text* text = value.as_text()) return append_string_repr(out, text->bytes());
  if (const List* list = value.as_list()) return append_list_repr(out, *list, depth + 1);
  if (const Dict* dict = value.as_dict()) return append_dict_repr(out, *dict, depth + 1);
  if (const auto* space = value.get<Namespace*>()) {
    return append_namespace_repr(out, **space, depth + 1);
  }
  if (const auto* callable = value.get<std::shared_ptr<const Callable>>()) {
    out += core::join("<function ", (*callable)->name, ">");
  } else if (value.get<LoopState*>() != nullptr) {
    out += "<LoopContext>";
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    out += to_text(value).bytes();
  }
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 400> buffer{};
  const double size = std::abs(value);
  const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto format = scientific ? std::chars_format::scientific : std::chars_format::fixed;
  const auto end = std::to_chars(buffer.begin(), buffer.end(), value, format).ptr;
  std::string text(buffer.begin(), end);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string to_repr(const Value& value) {
  std::string out;
  append_repr(out, value, 0);
  return out;
}

Text to_text(const Value& value) {
  if (const Text* text = value.as_text()) return *text;
  if (value.is_undefined()) return {};
  if (value.is_none()) return Text("None");
  if (const bool* flag = value.get<bool>()) return Text(*flag ? "True" : "False");
  if (const auto* number = value.get<int64_t>()) return Text(std::to_string(*number));
  if (const auto* number = value.get<double>()) return Text(float_text(*number));
  return Text(to_repr(value), any_typed(value));
}

}  // namespace weft::text::jinja
