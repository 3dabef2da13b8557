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

// What a schema says together with what it refers to and its choices. Clients write schemas, so
// each part is visited once, however often others lead to it.
std::vector<const json*> parts_of(const json& schema, const json& root) {
  std::vector<const json*> parts, next = {&schema};
  std::set<const json*> seen;
  while (!next.empty()) {
    const json* const part = next.back();
    next.pop_back();
    if (part == nullptr || !part->is_object() || !seen.insert(part).second) continue;
    parts.push_back(part);
    if (part->contains("$ref")) next.push_back(resolve(*part, root));
    for (const char* several : {"anyOf", "oneOf", "allOf"}) {
      if (!part->contains(several) || !(*part)[several].is_array()) continue;
      for (const json& each : (*part)[several]) next.push_back(&each);
    }
  }
  return parts;
}

// The schemas of a member: those under its name, or else of members without one.
std::vector<const json*> schemas_of_key(const json& root, const std::string& key) {
  std::vector<const json*> named, others;
  for (const json* part : parts_of(root, root)) {
    if (part->contains("additionalProperties")) others.push_back(&(*part)["additionalProperties"]);
    if (!part->contains("properties")) continue;
    const json& properties = (*part)["properties"];
    if (properties.is_object() && properties.contains(key)) named.push_back(&properties[key]);
  }
  return named.empty() ? others : named;
}

// The types that a member may have; none where the schema does not say.
Types types_of_key(const json& root, const std::string& key) {
  Types types;
  for (const json* schema : schemas_of_key(root, key)) {
    for (const json* part : parts_of(*schema, root)) add_own_types(*part, types);
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

// The JSON text of a value that stands without quotes and type: a text where its schema has texts
// and no other type fits, else what it reads as, and a text if it reads as nothing.
std::string typed_value(std::string_view text, const Types& types) {
  const auto read = json_of(text);
  if (read && (!types.contains("string") || fits(*read, types))) return *read;
  return core::dump_json(std::string(text));
}

json schema_of_function(const std::string& function, const AnswerOptions& options) {
  const auto known = std::ranges::find(options.functions, function);
  const auto index = static_cast<size_t>(known - options.functions.begin());
  if (index >= options.parameters.size()) return nullptr;
  return json::parse(options.parameters[index], nullptr, false);
}

}  // namespace

std::optional<text::ToolCall> read_tagged_call(const CallTags& tags, std::string_view body,
                                               const AnswerOptions& options) {
  text::ToolCall call{"", take_name(tags, body), "{"};
  const json schema = schema_of_function(call.name, options);
  bool is_first = true;
  while (!stripped(body).empty() && (tags.end.empty() || stripped(body) != tags.end)) {
    const auto value = take_value(tags, body);
    if (!value) return std::nullopt;
    call.arguments += core::join(is_first ? "" : ", ", core::dump_json(value->key), ": ",
                                 typed_value(value->text, types_of_key(schema, value->key)));
    is_first = false;
  }
  call.arguments += "}";
  return call;
}

}  // namespace weft::serve
