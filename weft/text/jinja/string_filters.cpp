#include "weft/text/jinja/strings.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text::jinja {
namespace {

Value cased(Context& context, const Value& input, Case to) {
  const Text text = to_text(input);
  charge_text(context, text.size());
  return Value::text(Text(change_case(text.bytes(), to), text.any_typed()));
}

Value upper_filter(Context& context, const Value& input, const Args& args) {
  bind("upper", args, {});
  return cased(context, input, Case::kUpper);
}

Value lower_filter(Context& context, const Value& input, const Args& args) {
  bind("lower", args, {});
  return cased(context, input, Case::kLower);
}

Value capitalize_filter(Context& context, const Value& input, const Args& args) {
  bind("capitalize", args, {});
  return cased(context, input, Case::kCapitalize);
}

bool starts_word(char32_t code) {
  return code == '-' || code == '(' || code == '{' || code == '[' || code == '<' ||
         is_python_space(code);
}

// Jinja's title: a word begins after a space, a dash or an opening bracket.
Value title_filter(Context& context, const Value& input, const Args& args) {
  bind("title", args, {});
  const Text text = to_text(input);
  charge_text(context, text.size());
  const std::vector<size_t> offsets = char_offsets(text.bytes());
  const std::string_view bytes = text.bytes();
  std::string out;
  for (size_t i = 0; i + 1 < offsets.size();) {
    size_t end = i;
    while (end + 1 < offsets.size() && !starts_word(utf8_step(bytes.substr(offsets[end])).code)) {
      ++end;
    }
    if (end > i) {
      out += change_case(bytes.substr(offsets[i], offsets[i + 1] - offsets[i]), Case::kUpper);
      out += change_case(bytes.substr(offsets[i + 1], offsets[end] - offsets[i + 1]), Case::kLower);
    }
    if (end + 1 < offsets.size())
      out += bytes.substr(offsets[end], offsets[end + 1] - offsets[end]);
    i = end + 1;
  }
  return Value::text(Text(std::move(out), text.any_typed()));
}

Value trim_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("trim", args, {"chars"});
  const Text text = to_text(input);
  charge_text(context, text.size());
  if (arg[0] == nullptr || arg[0]->is_none()) return Value::text(strip(text, Ends::kBoth));
  const std::string chars = string_of(*arg[0], "trim's chars");
  return Value::text(strip(text, Ends::kBoth, &chars));
}

Value replace_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("replace", args, {"old", "new", "count"});
  if (arg[0] == nullptr || arg[1] == nullptr) fault("replace needs an old and a new string");
  const bool counted = arg[2] != nullptr && !arg[2]->is_none();
  const int64_t count = counted ? integer_of(*arg[2], "replace's count") : -1;
  return Value::text(
      replace_all(context, to_text(input), to_text(*arg[0]), to_text(*arg[1]), count));
}

Value indent_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("indent", args, {"width", "first", "blank"});
  Text indention(std::string(4, ' '));
  if (arg[0] != nullptr) {
    const Text* text = arg[0]->as_text();
    indention =
        text != nullptr ? *text : pad(context, Text(), integer_of(*arg[0], "indent's width"), 0);
  }
  const bool first = arg[1] != nullptr && is_true(*arg[1]);
  const bool blank = arg[2] != nullptr && is_true(*arg[2]);
  Text text = to_text(input);
  // Without it a last empty line would be lost.
  text.append("\n", false);
  const std::vector<Text> lines = split_lines(text);
  charge_items(context, lines.size());
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.append("\n", false);
    if (i == 0 ? first : blank || !lines[i].empty()) out.append(indention);
    out.append(lines[i]);
    if (out.size() > kMaxTextBytes) break;
  }
  charge_text(context, out.size());
  return Value::text(std::move(out));
}

Value center_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("center", args, {"width"});
  const int64_t width = arg[0] == nullptr ? 80 : integer_of(*arg[0], "center's width");
  return Value::text(pad(context, to_text(input), width, 1));
}

constexpr Named<Filter> kStringFilters[] = {
    {"capitalize", capitalize_filter},
    {"center", center_filter},
    {"indent", indent_filter},
    {"lower", lower_filter},
    {"replace", replace_filter},
    {"title", title_filter},
    {"trim", trim_filter},
    {"upper", upper_filter},
};

}  // namespace

Filter find_string_filter(std::string_view name) {
  return find_named<Filter>(kStringFilters, name);
}

Text replace_all(Context& context, const Text& text, const Text& from, const Text& to,
                 int64_t count) {
  const std::string_view bytes = text.bytes();
  std::vector<size_t> places;
  if (from.empty()) {
    places = char_offsets(bytes);
  } else {
    for (size_t at = bytes.find(from.bytes()); at != bytes.npos;
         at = bytes.find(from.bytes(), at + from.size())) {
      places.push_back(at);
    }
  }
  if (count >= 0 && static_cast<size_t>(count) < places.size()) {
    places.resize(static_cast<size_t>(count));
  }
  context.charge(places.size() + text.size() / 64);
  if (to.size() > 0 && places.size() > kMaxTextBytes / to.size() + 1) {
    charge_text(context, kMaxTextBytes + 1);
  }
  charge_text(context, text.size() + places.size() * to.size());
  Text out;
  size_t begin = 0;
  for (const size_t place : places) {
    out.append(text.slice(begin, place));
    out.append(to);
    begin = place + from.size();
  }
  out.append(text.slice(begin, text.size()));
  return out;
}

namespace {

// The line ends of `str.splitlines`.
bool is_line_end(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

}  // namespace

std::vector<Text> split_lines(const Text& text) {
  const std::string_view bytes = text.bytes();
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Step step = utf8_step(bytes.substr(at));
    size_t next = at + step.size;
    if (is_line_end(step.code)) {
      if (bytes.substr(at, 2) == "\r\n") ++next;
      lines.push_back(text.slice(begin, at));
      begin = next;
    }
    at = next;
  }
  if (begin < bytes.size()) lines.push_back(text.slice(begin, bytes.size()));
  return lines;
}

Text pad(Context& context, const Text& text, int64_t width, int left_share) {
  const auto size = static_cast<int64_t>(utf8_length(text.bytes()));
  if (width <= size) return text;
  charge_text(context, static_cast<size_t>(width));
  const auto spaces = static_cast<size_t>(width - size);
  // Python puts the odd space of a centered text to the left when the width is odd.
  const size_t half = spaces / 2 + (spaces & static_cast<size_t>(width) & 1);
  const size_t left = left_share == 0 ? 0 : left_share == 1 ? half : spaces;
  Text out(std::string(left, ' '));
  out.append(text);
  out.append(std::string(spaces - left, ' '), false);
  return out;
}

}  // namespace weft::text::jinja
