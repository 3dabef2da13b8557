#include "weft/serve/chat/tagged_call.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/chat/call_marks.h"
#include "weft/serve/chat/literal.h"

namespace weft::serve {
namespace {

using nlohmann::json;
using Types = std::set<std::string>;

std::string type_of(const json& value) {
  if (value.is_number_integer()) return "integer";
  return value.is_boolean() ? "boolean" : value.type_name();
}

const json* resolve(const json& schema, const json& root) {
  const std::string name = schema["$ref"].is_string() ? schema["$ref"].get<std::string>() : "";
  if (!name.starts_with("#")) return nullptr;
  try {
    const json::json_pointer path(name.substr(1));
    return root.contains(path) ? &root[path] : nullptr;
  } catch (const json::exception&) {
    return nullptr;
  }
}

// The types that a schema names by itself.
void add_own_types(const json& schema, Types& types) {
  if (schema.contains("const")) types.insert(type_of(schema["const"]));
  if (schema.contains("enum") && schema["enum"].is_array()) {
    for (const json& each : schema["enum"]) types.insert(type_of(each));
  }
  if (!schema.contains("type")) return;
  const json& type = schema["type"];
  for (const json& each : type.is_array() ? type : json::array({type})) {
    if (each.is_string()) types.insert(each.get<std::string>());
  }
}

// The types that a schema allows; none where it does not say. Clients write schemas, so each part
// is visited once, however often others lead to it.
void add_types(const json& schema, const json& root, Types& types) {
  std::vector<const json*> parts = {&schema};
  std::set<const json*> seen;
  while (!parts.empty()) {
    const json* const part = parts.back();
    parts.pop_back();
    if (part == nullptr || !part->is_object() || !seen.insert(part).second) continue;
    add_own_types(*part, types);
    if (part->contains("$ref")) parts.push_back(resolve(*part, root));
    for (const char* several : {"anyOf", "oneOf", "allOf"}) {
      if (!part->contains(several) || !(*part)[several].is_array()) continue;
      for (const json& each : (*part)[several]) parts.push_back(&each);
    }
  }
}

Types types_of_key(const std::string& schema, const std::string& key) {
  Types types;
  const json root = json::parse(schema, nullptr, false);
  if (!root.is_object() || !root.contains("properties")) return types;
  const json& properties = root["properties"];
  if (properties.is_object() && properties.contains(key)) {
    add_types(properties[key], root, types);
  }
  return types;
}

// What the text reads as: JSON, or values as Python writes them.
std::optional<std::string> json_of(std::string_view text) {
  text = stripped(text);
  try {
    core::parse_json(text, "value");
    return std::string(text);
  } catch (const core::FormatError&) {
    return literal_json(text);
  }
}

bool fits(const std::string& value, const Types& types) {
  const std::string type = type_of(json::parse(value, nullptr, false));
  return type != "string" &&
         (types.contains(type) || (type == "integer" && types.contains("number")));
}

std::string_view without_lines(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// Goes past the text up to a mark, and past that; none if there is no such mark.
std::optional<std::string_view> take_until(std::string_view& text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == text.npos) return std::nullopt;
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + mark.size());
  return before;
}

// Goes past white space and a mark.
bool take_mark(std::string_view& text, std::string_view mark) {
  const std::string_view front = stripped_front(text);
  if (!front.starts_with(mark)) return false;
  text = front.substr(mark.size());
  return true;
}

struct TaggedValue {
  std::string key;
  std::string_view text;
};

std::optional<TaggedValue> take_value(const CallTags& tags, std::string_view& body) {
  if (!take_mark(body, tags.before_key)) return std::nullopt;
  const auto key = take_until(body, tags.after_key);
  if (!key || (!tags.before_value.empty() && !take_mark(body, tags.before_value))) {
    return std::nullopt;
  }
  const auto value = take_until(body, tags.after_value);
  if (!value) return std::nullopt;
  return TaggedValue{std::string(stripped(*key)), tags.has_lines ? without_lines(*value) : *value};
}

// The name ends at its tag, or before the first argument.
std::string take_name(const CallTags& tags, std::string_view& body) {
  if (!tags.before_name.empty() && !take_mark(body, tags.before_name)) return "";
  body = stripped_front(body);
  const std::string_view ends[] = {tags.after_name, tags.before_key};
  const FoundMark found = first_mark(body, ends);
  const std::string name(stripped(body.substr(0, found.at)));
  body.remove_prefix(found.at + (found.mark == tags.after_name ? found.mark.size() : 0));
  return name;
}

}  // namespace

std::string typed_value(std::string_view text, const std::string& schema, const std::string& key) {
  const Types types = types_of_key(schema, key);
  const auto read = json_of(text);
  const bool may_be_text = types.contains("string");
  if (read && (may_be_text ? fits(*read, types) : true)) return *read;
  return core::dump_json(std::string(text));
}

std::optional<text::ToolCall> read_tagged_call(const CallTags& tags, std::string_view body,
                                               const AnswerOptions& options) {
  text::ToolCall call{"", take_name(tags, body), "{"};
  const auto known = std::ranges::find(options.functions, call.name);
  const auto index = static_cast<size_t>(known - options.functions.begin());
  const std::string schema = index < options.parameters.size() ? options.parameters[index] : "";
  bool is_first = true;
  while (!stripped(body).empty() && (tags.end.empty() || stripped(body) != tags.end)) {
    const auto value = take_value(tags, body);
    if (!value) return std::nullopt;
    call.arguments += core::join(is_first ? "" : ", ", core::dump_json(value->key), ": ",
                                 typed_value(value->text, schema, value->key));
    is_first = false;
  }
  call.arguments += "}";
  return call;
}

}  // namespace weft::serve
