#include <algorithm>

#include "weft/text/jinja/strings.h"
#include "weft/text/unicode/unicode.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text::jinja {
namespace {

const Text& self_text(const Value& self) { return *self.as_text(); }

template <Ends ends>
Value strip_method(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("strip", args, {"chars"});
  charge_text(context, self_text(self).size());
  if (arg[0] == nullptr || arg[0]->is_none()) return Value::text(strip(self_text(self), ends));
  const std::string chars = string_of(*arg[0], "strip's chars");
  return Value::text(strip(self_text(self), ends, &chars));
}

template <Case to>
Value case_method(Context& context, const Value& self, const Args& args) {
  bind("this method", args, {});
  const Text& text = self_text(self);
  charge_text(context, text.size());
  return Value::text(Text(change_case(text.bytes(), to), text.any_typed()));
}

struct Span {
  size_t begin;
  size_t end;
};

// Pieces between runs of white space; the last one takes the rest after `limit` cuts.
std::vector<Span> split_spaces(std::string_view bytes, size_t limit) {
  std::vector<Span> spans;
  size_t at = 0;
  const auto skip = [&](bool spaces) {
    while (at < bytes.size()) {
      const Utf8Step step = utf8_step(bytes.substr(at));
      if (is_python_space(step.code) != spaces) break;
      at += step.size;
    }
  };
  for (skip(true); at < bytes.size(); skip(true)) {
    const size_t begin = at;
    if (spans.size() == limit) {
      const Text rest = strip(Text(std::string(bytes.substr(at))), Ends::kRight);
      spans.push_back({begin, begin + rest.size()});
      break;
    }
    skip(false);
    spans.push_back({begin, at});
  }
  return spans;
}

std::vector<Span> split_at(std::string_view bytes, std::string_view separator, size_t limit) {
  std::vector<Span> spans;
  size_t begin = 0;
  while (spans.size() < limit) {
    const size_t at = bytes.find(separator, begin);
    if (at == bytes.npos) break;
    spans.push_back({begin, at});
    begin = at + separator.size();
  }
  spans.push_back({begin, bytes.size()});
  return spans;
}

std::vector<Span> split_at_from_right(std::string_view bytes, std::string_view separator,
                                      size_t limit) {
  std::vector<Span> spans;
  size_t end = bytes.size();
  while (spans.size() < limit && end >= separator.size()) {
    const size_t at = bytes.rfind(separator, end - separator.size());
    if (at == bytes.npos) break;
    spans.push_back({at + separator.size(), end});
    end = at;
  }
  spans.push_back({0, end});
  std::reverse(spans.begin(), spans.end());
  return spans;
}

template <bool from_right>
Value split_method(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("split", args, {"sep", "maxsplit"});
  const Text& text = self_text(self);
  const int64_t most = arg[1] == nullptr ? -1 : integer_of(*arg[1], "split's maxsplit");
  const size_t limit = most < 0 ? SIZE_MAX : static_cast<size_t>(most);
  const bool by_space = arg[0] == nullptr || arg[0]->is_none();
  std::vector<Span> spans;
  charge_text(context, text.size());
  if (by_space) {
    if (from_right && most >= 0) fault("rsplit with maxsplit needs a separator");
    spans = split_spaces(text.bytes(), limit);
  } else {
    const std::string separator = string_of(*arg[0], "split's sep");
    if (separator.empty()) fault("empty separator");
    spans = from_right ? split_at_from_right(text.bytes(), separator, limit)
                       : split_at(text.bytes(), separator, limit);
  }
  charge_items(context, spans.size());
  std::vector<Value> parts;
  for (const Span& span : spans) parts.push_back(Value::text(text.slice(span.begin, span.end)));
  return Value::list(std::move(parts));
}

Value splitlines_method(Context& context, const Value& self, const Args& args) {
  bind("splitlines", args, {});
  charge_text(context, self_text(self).size());
  std::vector<Value> lines;
  for (Text& line : split_lines(self_text(self))) lines.push_back(Value::text(std::move(line)));
  charge_items(context, lines.size());
  return Value::list(std::move(lines));
}

template <bool at_end>
Value affix_method(Context& context, const Value& self, const Args& args) {
  const auto arg = bind(at_end ? "endswith" : "startswith", args, {"affix"});
  if (arg[0] == nullptr) fault("startswith and endswith need a string");
  const std::string& bytes = self_text(self).bytes();
  const auto matches = [&](const Value& affix) {
    const std::string text = string_of(affix, "startswith or endswith");
    return at_end ? bytes.ends_with(text) : bytes.starts_with(text);
  };
  const List* list = arg[0]->as_list();
  if (list == nullptr) return Value(matches(*arg[0]));
  charge_items(context, list->items.size());
  return Value(std::any_of(list->items.begin(), list->items.end(), matches));
}

template <bool at_end>
Value remove_affix_method(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("removeprefix or removesuffix", args, {"affix"});
  if (arg[0] == nullptr) fault("removeprefix and removesuffix need a string");
  const Text& text = self_text(self);
  charge_text(context, text.size());
  const std::string affix = string_of(*arg[0], "removeprefix or removesuffix");
  const std::string& bytes = text.bytes();
  if (at_end ? !bytes.ends_with(affix) : !bytes.starts_with(affix)) return self;
  return Value::text(at_end ? text.slice(0, text.size() - affix.size())
                            : text.slice(affix.size(), text.size()));
}

Value replace_method(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("replace", args, {"old", "new", "count"});
  if (arg[0] == nullptr || arg[1] == nullptr) fault("replace needs an old and a new string");
  string_of(*arg[0], "replace's old string");
  string_of(*arg[1], "replace's new string");
  const int64_t count = arg[2] == nullptr ? -1 : integer_of(*arg[2], "replace's count");
  return Value::text(
      replace_all(context, self_text(self), *arg[0]->as_text(), *arg[1]->as_text(), count));
}

// The character index of the first or last place of the argument, or -1.
template <bool last>
Value find_method_of(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("find", args, {"sub"});
  if (arg[0] == nullptr) fault("find needs a string");
  const std::string& bytes = self_text(self).bytes();
  charge_text(context, bytes.size());
  const std::string part = string_of(*arg[0], "find");
  const size_t at = last ? bytes.rfind(part) : bytes.find(part);
  if (at == bytes.npos) return Value::integer(-1);
  return Value::integer(static_cast<int64_t>(utf8_length(std::string_view(bytes).substr(0, at))));
}

Value index_in_text(Context& context, const Value& self, const Args& args) {
  Value place = find_method_of<false>(context, self, args);
  if (place.as_integer() < 0) fault("substring not found");
  return place;
}

Value count_in_text(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("count", args, {"sub"});
  if (arg[0] == nullptr) fault("count needs a string");
  const std::string& bytes = self_text(self).bytes();
  charge_text(context, bytes.size());
  const std::string part = string_of(*arg[0], "count");
  const size_t places =
      part.empty() ? utf8_length(bytes) + 1 : split_at(bytes, part, SIZE_MAX).size() - 1;
  return Value::integer(static_cast<int64_t>(places));
}

Value join_method(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("join", args, {"iterable"});
  if (arg[0] == nullptr) fault("join needs a list of strings");
  Text out;
  bool first = true;
  for (const Value& item : to_items(*arg[0])) {
    if (!first) out.append(self_text(self));
    first = false;
    string_of(item, "join");
    out.append(*item.as_text());
    charge_text(context, out.size());
  }
  return Value::text(std::move(out));
}

template <uint16_t classes>
Value all_are_method(Context& context, const Value& self, const Args& args) {
  bind("this method", args, {});
  const std::string_view bytes = self_text(self).bytes();
  charge_text(context, bytes.size());
  for (std::string_view rest = bytes; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    if ((unicode_class(step.code) & classes) == 0) return Value(false);
    rest.remove_prefix(step.size);
  }
  return Value(!bytes.empty());
}

template <Case to>
Value is_cased_method(Context& context, const Value& self, const Args& args) {
  bind("this method", args, {});
  const std::string& bytes = self_text(self).bytes();
  charge_text(context, bytes.size());
  const Case other = to == Case::kUpper ? Case::kLower : Case::kUpper;
  return Value(change_case(bytes, to) == bytes && change_case(bytes, other) != bytes);
}

template <bool last>
Value partition_method(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("partition", args, {"sep"});
  if (arg[0] == nullptr) fault("partition needs a separator");
  const Text& text = self_text(self);
  charge_text(context, text.size());
  const std::string part = string_of(*arg[0], "partition's sep");
  if (part.empty()) fault("empty separator");
  const size_t at = last ? text.bytes().rfind(part) : text.bytes().find(part);
  const Value none = Value::text("");
  if (at == std::string::npos) {
    return Value::list(last ? std::vector{none, none, self} : std::vector{self, none, none}, true);
  }
  const size_t end = at + part.size();
  return Value::list({Value::text(text.slice(0, at)), Value::text(text.slice(at, end)),
                      Value::text(text.slice(end, text.size()))},
                     true);
}

template <int left_share>
Value pad_method(Context& context, const Value& self, const Args& args) {
  const auto arg = bind("ljust, rjust or center", args, {"width"});
  if (arg[0] == nullptr) fault("ljust, rjust and center need a width");
  return Value::text(pad(context, self_text(self), integer_of(*arg[0], "the width"), left_share));
}

constexpr Named<Callable::Method> kMethods[] = {
    {"capitalize", case_method<Case::kCapitalize>},
    {"center", pad_method<1>},
    {"count", count_in_text},
    {"endswith", affix_method<true>},
    {"find", find_method_of<false>},
    {"index", index_in_text},
    {"isalnum", all_are_method<kLetter | kNumeric>},
    {"isalpha", all_are_method<kLetter>},
    {"isdigit", all_are_method<kNumeric>},
    {"islower", is_cased_method<Case::kLower>},
    {"isspace", all_are_method<kSpace>},
    {"isupper", is_cased_method<Case::kUpper>},
    {"join", join_method},
    {"ljust", pad_method<0>},
    {"lower", case_method<Case::kLower>},
    {"lstrip", strip_method<Ends::kLeft>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_affix_method<false>},
    {"removesuffix", remove_affix_method<true>},
    {"replace", replace_method},
    {"rfind", find_method_of<true>},
    {"rjust", pad_method<2>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<Ends::kRight>},
    {"split", split_method<false>},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<false>},
    {"strip", strip_method<Ends::kBoth>},
    {"swapcase", case_method<Case::kSwap>},
    {"title", case_method<Case::kTitle>},
    {"upper", case_method<Case::kUpper>},
};

}  // namespace

Callable::Method find_string_method(std::string_view name) {
  return find_named<Callable::Method>(kMethods, name);
}

}  // namespace weft::text::jinja
