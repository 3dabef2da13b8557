#include "weft/serve/chat/call_body.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/chat/call_marks.h"
#include "weft/serve/chat/literal.h"
#include "weft/serve/chat/member_text.h"
#include "weft/serve/chat/tagged_call.h"

namespace weft::serve {
namespace {

using Calls = std::vector<text::ToolCall>;

// Mistral's templates refuse ids of any other form.
bool is_mistral_id(const nlohmann::json& id) {
  constexpr size_t kLetters = 9;
  if (!id.is_string()) return false;
  const auto& letters = id.get_ref<const std::string&>();
  return letters.size() == kLetters &&
         std::ranges::all_of(letters, [](unsigned char c) { return std::isalnum(c) != 0; });
}

// One call's object.
std::optional<text::ToolCall> parse_call(ToolFormat format, const std::string& text) {
  nlohmann::json object;
  try {
    object = core::parse_json(text, "call");
  } catch (const core::FormatError&) {
    return std::nullopt;
  }
  if (!object.is_object()) return std::nullopt;
  const char* const key = object.contains("name") ? "name" : "tool_name";
  if (!object.contains(key) || !object[key].is_string()) return std::nullopt;
  text::ToolCall call{"", object[key].get<std::string>(), "{}"};
  for (const char* name : {"arguments", "parameters"}) {
    if (!object.contains(name)) continue;
    // Some write the arguments' text.
    call.arguments = object[name].is_string() ? object[name].get<std::string>()
                                              : member_text(text, {name}).value_or("{}");
    break;
  }
  const bool has_id = format == ToolFormat::kMistral && object.contains("id");
  if (has_id && is_mistral_id(object["id"])) call.id = object["id"].get<std::string>();
  return call;
}

// The parts between semicolons that stand in no string.
std::vector<std::string> split_at_semicolons(std::string_view text) {
  std::vector<std::string> parts;
  const std::array ends = {std::string_view(";")};
  while (true) {
    // The scan of an object ends with it; white space may stand before the semicolon.
    const size_t size = ObjectScan().take(text, ends);
    const size_t end = std::min(text.find(';', size), text.size());
    parts.emplace_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string> objects_of(ToolFormat format, std::string_view text) {
  if (format == ToolFormat::kLlama) return split_at_semicolons(text);
  if (!text.starts_with('[')) return {std::string(text)};
  try {
    core::parse_json(text, "calls");
  } catch (const core::FormatError&) {
    return {};
  }
  return element_texts(text);
}

Calls read_objects(ToolFormat format, std::string_view text) {
  Calls calls;
  for (const std::string& object : objects_of(format, text)) {
    auto call = parse_call(format, object);
    if (!call) return {};
    calls.push_back(std::move(*call));
  }
  return calls;
}

Calls read_body(const ToolFamily& family, std::string_view body, const AnswerOptions& options) {
  switch (family.form) {
    case CallForm::kTagged: {
      auto call = read_tagged_call(family.tags, body, options);
      return call ? Calls{std::move(*call)} : Calls{};
    }
    case CallForm::kPython: {
      auto calls = read_python_calls(body);
      return calls ? std::move(*calls) : read_objects(family.format, body);
    }
    case CallForm::kBraces:
      return read_braced_calls(body, family.quote).value_or(Calls{});
    default:
      return read_objects(family.format, body);
  }
}

// Arguments that were put together from parts may name one twice, or be nested too deep.
bool are_json(const Calls& calls) {
  return std::ranges::all_of(calls, [](const text::ToolCall& call) {
    try {
      core::parse_json(call.arguments, "arguments");
      return true;
    } catch (const core::FormatError&) {
      return false;
    }
  });
}

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}

// Whether the text is the pattern, in which # is any number and white space at the ends is free.
bool is_like(std::string_view text, std::string_view pattern) {
  text = stripped(text);
  pattern = stripped(pattern);
  const size_t number = pattern.find('#');
  if (number == pattern.npos) return text == pattern;
  const std::string_view before = pattern.substr(0, number), after = pattern.substr(number + 1);
  if (text.size() <= before.size() + after.size() || !text.starts_with(before) ||
      !text.ends_with(after)) {
    return false;
  }
  text.remove_prefix(before.size());
  text.remove_suffix(after.size());
  return std::ranges::all_of(text, is_name);
}

// The id that the model has given to a call.
std::string id_of_head(const ToolFamily& family, std::string_view head) {
  if (family.id_end.empty()) return "";
  const size_t begin = head.find(family.id_begin);
  if (begin == head.npos) return "";
  head.remove_prefix(begin + family.id_begin.size());
  return std::string(stripped(head.substr(0, head.find(family.id_end))));
}

}  // namespace

Calls read_calls_of(const ToolFamily& family, std::string_view body, const AnswerOptions& options) {
  Calls calls = read_body(family, stripped(body), options);
  // Objects may have the arguments' text, which is the client's to judge.
  if (family.form != CallForm::kObjects && !are_json(calls)) return {};
  const bool takes_any = family.format == ToolFormat::kLlama;
  const bool are_given = takes_any || std::ranges::all_of(calls, [&](const text::ToolCall& call) {
                           return options.is_given(call.name);
                         });
  return are_given ? calls : Calls{};
}

text::ToolCall call_of_head(const ToolFamily& family, std::string_view head,
                            const AnswerOptions& options) {
  head = stripped(head);
  for (const CallHead& each : family.heads) {
    if (!head.starts_with(each.before)) continue;
    const std::string_view rest = head.substr(each.before.size());
    const auto end = std::ranges::find_if_not(rest, is_name);
    const std::string_view name(rest.begin(), end);
    const bool is_given = !name.empty() && options.is_given(name);
    if (is_given && is_like(rest.substr(name.size()), each.after)) {
      return {id_of_head(family, head), std::string(name), ""};
    }
  }
  return {};
}

}  // namespace weft::serve
