#include "weft/grammar/schema.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/json.h"

namespace weft::grammar {
namespace {

using core::check;
using core::ConfigError;
using nlohmann::json;
using Names = std::set<std::string_view>;

constexpr int kMostDepth = 48;

// What says nothing about a value.
const Names& annotations() {
  static const Names names = {"$schema", "$id",      "$comment",  "$defs",      "definitions",
                              "title",   "default",  "examples",  "deprecated", "description",
                              "example", "readOnly", "writeOnly", "strict",     "$anchor"};
  return names;
}

// Each takes the whole schema for itself; the first of them that is there does.
constexpr std::array<std::string_view, 6> kAlone = {"$ref",  "const", "enum",
                                                    "anyOf", "oneOf", "allOf"};

// What each type understands.
const std::map<std::string_view, Names>& keywords_of_types() {
  static const std::map<std::string_view, Names> table = {
      {"object",
       {"properties", "required", "additionalProperties", "patternProperties", "propertyNames",
        "minProperties", "maxProperties", "unevaluatedProperties"}},
      {"array", {"items", "prefixItems", "minItems", "maxItems", "unevaluatedItems"}},
      {"string", {"minLength", "maxLength", "pattern", "format"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"}},
      {"integer",
       {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"}},
      {"boolean", {}},
      {"null", {}}};
  return table;
}

std::vector<std::string> types_of(const json& schema, const std::string& where) {
  const auto found = schema.find("type");
  if (found == schema.end()) return {};
  if (found->is_string()) return {found->get<std::string>()};
  std::vector<std::string> types;
  check<ConfigError>(found->is_array(), where, ": type, expected a name or a list of names");
  for (const json& each : *found) {
    check<ConfigError>(each.is_string(), where, ": type, expected a name or a list of names");
    types.push_back(each.get<std::string>());
  }
  return types;
}

bool is_of_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "integer") return value.is_number_integer();
  return type == "number" && value.is_number();
}

// The values that a `const` or an `enum` lists have the type beside it, so that this says nothing.
void check_values(const json& schema, std::string_view keyword, const std::string& where) {
  const std::vector<std::string> types = types_of(schema, where);
  if (types.empty()) return;
  const json& given = schema.at(std::string(keyword));
  const json values = keyword == "const" ? json::array({given}) : given;
  for (const json& value : values) {
    const bool fits = std::ranges::any_of(
        types, [&](const std::string& type) { return is_of_type(value, type); });
    check<ConfigError>(fits, where, ": ", keyword, " has ", core::dump_json(value),
                       ", which is not of its type; leave it out");
  }
}

void check_alone(const json& schema, std::string_view keyword, const std::string& where) {
  const bool lists_values = keyword == "const" || keyword == "enum";
  for (const auto& [name, value] : schema.items()) {
    const bool is_said = name == keyword || annotations().contains(name);
    if (is_said || (lists_values && name == "type")) continue;
    core::fail<ConfigError>(where, ": ", name, " beside ", keyword,
                            ", expected one of them; both together are not supported");
  }
  if (lists_values) check_values(schema, keyword, where);
  const bool is_one =
      keyword != "allOf" || (schema.at("allOf").is_array() && schema.at("allOf").size() == 1);
  check<ConfigError>(is_one, where,
                     ": allOf, expected a list of one schema; more of them are not "
                     "supported");
}

void check_typed(const json& schema, const std::string& where) {
  const std::vector<std::string> types = types_of(schema, where);
  for (const std::string& type : types) {
    check<ConfigError>(keywords_of_types().contains(type), where, ": type ", core::quote(type),
                       ", expected object, array, string, number, integer, boolean or null");
  }
  for (const auto& [name, value] : schema.items()) {
    if (name == "type" || annotations().contains(name)) continue;
    const bool is_known = std::ranges::any_of(
        keywords_of_types(),
        [&keyword = name](const auto& row) { return row.second.contains(keyword); });
    check<ConfigError>(is_known, where, ": the keyword ", core::quote(name), " is not supported");
    // Of other types it says nothing; without a type it may be meant for any.
    check<ConfigError>(!types.empty(), where, ": ", name, " without a type; say its type");
    const bool is_of_number = name == "multipleOf" && std::ranges::count(types, "number") > 0;
    check<ConfigError>(!is_of_number, where,
                       ": multipleOf of numbers is not supported, expected the type integer");
  }
}

void check_one(const json& schema, const std::string& where, int depth);

// A schema, or a list or an object of them.
void check_children(const json& value, bool holds_many, const std::string& where, int depth) {
  if (!holds_many) return check_one(value, where, depth);
  check<ConfigError>(value.is_structured(), where, ", expected a list or an object of schemas");
  for (const auto& [name, child] : value.items()) {
    check_one(child, core::join(where, "/", name), depth);
  }
}

void check_one(const json& schema, const std::string& where, int depth) {
  if (schema.is_boolean()) return;
  check<ConfigError>(schema.is_object(), where, ", expected an object, true or false");
  check<ConfigError>(depth < kMostDepth, where, ": nested deeper than ", kMostDepth);
  const auto alone = std::ranges::find_if(
      kAlone, [&](std::string_view name) { return schema.contains(std::string(name)); });
  alone != kAlone.end() ? check_alone(schema, *alone, where) : check_typed(schema, where);
  static const Names single = {"items", "additionalProperties", "unevaluatedItems",
                               "unevaluatedProperties", "propertyNames"};
  static const Names many = {
      "properties", "patternProperties", "$defs", "definitions", "prefixItems", "anyOf", "oneOf",
      "allOf"};
  for (const auto& [name, value] : schema.items()) {
    const bool holds_many = many.contains(name);
    if (!holds_many && !single.contains(name)) continue;
    check_children(value, holds_many, core::join(where, "/", name), depth + 1);
  }
}

}  // namespace

void check_schema(const std::string& text) {
  core::JsonLimits limits;
  limits.max_depth = 2 * kMostDepth;
  json schema;
  try {
    schema = core::parse_json(text, "schema", limits);
  } catch (const core::FormatError& error) {
    core::fail<ConfigError>(error.what());
  }
  check_one(schema, "schema", 0);
}

}  // namespace weft::grammar
