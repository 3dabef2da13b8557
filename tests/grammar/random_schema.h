#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>

#include "weft/core/error.h"

namespace weft::testing {

using Json = nlohmann::json;

/// Makes JSON schemas by a seed: objects with required and optional members, arrays with bounds,
/// tuples, enums, constants, ranges, lengths, patterns, unions and trees by $ref.
class RandomSchema {
 public:
  explicit RandomSchema(uint64_t seed) : random_(seed) {}

  Json whole() {
    if (below(4) > 0) return object(3);
    const Json next = {{"anyOf", {{{"type", "null"}}, {{"$ref", "#/$defs/node"}}}}};
    const Json node = {{"type", "object"},
                       {"properties", {{"value", any(1)}, {"next", next}}},
                       {"required", {"value", "next"}}};
    return {{"$ref", "#/$defs/node"}, {"$defs", {{"node", node}}}};
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }

  Json any(int depth) {
    switch (below(depth > 0 ? 10 : 7)) {
      case 0:
        return {{"type", "integer"}, {"minimum", below(200) - 100}, {"maximum", 100 + below(900)}};
      case 1:
        return {{"type", "number"},
                {"exclusiveMinimum", -0.5 * below(9)},
                {"maximum", 0.001 + 0.01 * below(200)}};
      case 2:
        return {{"type", "string"}, {"minLength", below(3)}, {"maxLength", 3 + below(5)}};
      case 3: {
        const char* const patterns[] = {"^[a-z]{2,4}$", "^\\d{3}-\\d$", "^(red|green)$",
                                        "^[^0-9]{1,3}$"};
        return {{"type", "string"}, {"pattern", patterns[below(4)]}};
      }
      case 4:
        return {{"enum", {"a\"b", -3, nullptr, 0.5}}};
      case 5:
        return {{"const", {{"k", {1, true}}}}};
      case 6:
        return {{"type", {"null", "boolean", "integer"}}, {"maximum", 7}};
      case 7:
        return object(depth - 1);
      case 8: {
        const int least = below(3);
        return {{"type", "array"},
                {"items", any(depth - 1)},
                {"minItems", least},
                {"maxItems", least + below(3)}};
      }
      default:
        return {{"anyOf", {any(depth - 1), any(depth - 1)}}};
    }
  }

  Json object(int depth) {
    Json properties = Json::object(), required = Json::array();
    for (const char* name : {"a", "b\"", "\xC3\xA9"}) {
      if (below(3) == 0) continue;
      properties[name] = any(depth);
      if (below(2) == 0) required.push_back(name);
    }
    return {{"type", "object"}, {"properties", properties}, {"required", required}};
  }

  std::mt19937_64 random_;
};

/// What is wrong with a value, or "": a validator of what RandomSchema makes.
inline std::string complaint(const Json& value, const Json& schema, const Json& root) {
  const auto wrong = [&](const std::string& why) { return why + ": " + value.dump(); };
  if (schema.contains("$ref")) return complaint(value, root["$defs"]["node"], root);
  if (schema.contains("const")) return value == schema["const"] ? "" : wrong("const");
  if (schema.contains("enum")) {
    for (const Json& each : schema["enum"]) {
      if (each == value) return "";
    }
    return wrong("enum");
  }
  if (schema.contains("anyOf")) {
    for (const Json& each : schema["anyOf"]) {
      if (complaint(value, each, root).empty()) return "";
    }
    return wrong("anyOf");
  }
  const std::string types = schema["type"].dump();
  const std::string type = value.is_number_integer() ? "integer" : value.type_name();
  const bool is_number = value.is_number() && types == "\"number\"";
  if (!is_number && types.find('"' + type + '"') == std::string::npos) return wrong("type");
  if (value.is_number()) {
    if (value < schema.value("minimum", -1e300) || value > schema.value("maximum", 1e300))
      return wrong("range");
    if (value <= schema.value("exclusiveMinimum", -1e300)) return wrong("exclusiveMinimum");
  }
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const auto length =
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
    if (length < schema.value("minLength", 0) || length > schema.value("maxLength", 1000))
      return wrong("length");
    // The library matches bytes, of which a negated class would take one.
    const bool is_ascii = std::all_of(text.begin(), text.end(), [](char c) { return c > 0; });
    const std::regex pattern(schema.value("pattern", ""));
    if (is_ascii && !std::regex_search(text, pattern)) return wrong("pattern");
  }
  if (value.is_array()) {
    if (value.size() < schema["minItems"] || value.size() > schema["maxItems"])
      return wrong("items");
    for (const Json& each : value) {
      if (const auto found = complaint(each, schema["items"], root); !found.empty()) return found;
    }
  }
  if (!value.is_object()) return "";
  for (const Json& name : schema["required"]) {
    if (!value.contains(name.get<std::string>())) return wrong("required");
  }
  for (const auto& [name, member] : value.items()) {
    if (!schema["properties"].contains(name)) return wrong("member");
    if (const auto found = complaint(member, schema["properties"][name], root); !found.empty())
      return found;
  }
  return "";
}

}  // namespace weft::testing
