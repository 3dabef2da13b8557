#include "weft/grammar/schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/grammar/schema_apart.h"
#include "weft/grammar/schema_object.h"
#include "weft/grammar/source_text.h"

namespace weft::grammar {
namespace {

using core::check;
using core::ConfigError;
using core::join;
using nlohmann::json;
using Names = std::set<std::string_view>;

constexpr int kMostDepth = 48;
constexpr int64_t kMostCount = INT32_MAX;

// What says nothing about a value.
const Names& annotations() {
  static const Names names = {"$schema",     "$id",         "$comment", "$defs",
                              "definitions", "title",       "default",  "examples",
                              "deprecated",  "description", "example",  "readOnly",
                              "writeOnly",   "strict",      "$anchor",  "discriminator"};
  return names;
}

// Each takes the whole schema for itself; the first of them that is there does.
constexpr std::array<std::string_view, 6> kAlone = {"$ref",  "const", "enum",
                                                    "anyOf", "oneOf", "allOf"};

// Keywords whose value is a schema, and those that hold many.
const Names& single_schemas() {
  static const Names names = {"items", "additionalProperties", "unevaluatedItems",
                              "unevaluatedProperties", "propertyNames"};
  return names;
}
const Names& many_schemas() {
  static const Names names = {
      "properties", "patternProperties", "$defs", "definitions", "prefixItems", "anyOf", "oneOf",
      "allOf"};
  return names;
}

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
  check<ConfigError>(!types.empty(), where, ": type, expected a name or a list of names");
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

// A number beyond 64 bits would become the nearest double.
void check_numbers(const json& value, const std::string& where) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value.is_structured()) {
    for (const json& each : value) check_numbers(each, where);
  }
  const bool is_exact = !value.is_number() ||
                        (value.is_number_float() && std::abs(value.get<double>()) <= kExact) ||
                        (value.is_number_integer() &&
                         (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX));
  check<ConfigError>(is_exact, where, ": the number ", core::dump_json(value),
                     ", expected one of 64 bits");
}

// The values that a `const` or an `enum` lists have the type beside it, so that this says nothing.
void check_values(const json& schema, std::string_view keyword, const std::string& where) {
  check_numbers(schema.at(std::string(keyword)), join(where, ": ", keyword));
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

// Counts that fit what they are kept in.
void check_counts(const json& schema, const std::string& where) {
  for (const char* name :
       {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}) {
    const auto found = schema.find(name);
    if (found == schema.end()) continue;
    const bool is_count =
        found->is_number_integer() && *found >= int64_t{0} && *found <= kMostCount;
    check<ConfigError>(is_count, where, ": ", name, " ", core::dump_json(*found),
                       ", expected a whole number from 0 to ", kMostCount);
  }
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
  check_counts(schema, where);
  if (std::ranges::count(types, "object") > 0) check_object(schema, where);
}

// One schema with all that it holds.
class Walk {
 public:
  explicit Walk(const json& root) : root_(root) {}

  std::vector<SchemaPattern> run() {
    check_one(root_, "schema", 0);
    return std::move(patterns_);
  }

 private:
  void check_one(const json& schema, const std::string& where, int depth);
  void check_children(const json& value, bool holds_many, const std::string& where, int depth);
  void check_reference(const json& schema, const std::string& where) const;
  void note_patterns(const json& schema, const std::string& where);

  const json& root_;
  std::vector<SchemaPattern> patterns_;
};

// What it names is a schema that is checked, too, and found by xgrammar's way of reading the name.
void Walk::check_reference(const json& schema, const std::string& where) const {
  const auto found = schema.find("$ref");
  if (found == schema.end()) return;
  const std::string name = found->is_string() ? found->get<std::string>() : "";
  const bool is_path = name.starts_with("#/") && name.find_first_of("~%") == std::string::npos;
  const json* place = &root_;
  bool is_schema = name == "#" || is_path;
  for (size_t begin = 2; is_path && place != nullptr && begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    begin = end + 1;
    const bool is_known =
        !is_schema || many_schemas().contains(part) || single_schemas().contains(part);
    is_schema = !is_schema || single_schemas().contains(part);
    const auto next =
        place->is_object() && is_known && !part.empty() ? place->find(part) : place->end();
    place = next == place->end() ? nullptr : &*next;
  }
  check<ConfigError>(place != nullptr && is_schema, where, ": $ref ", core::quote(name),
                     ", expected # or the path of a schema in this one, like #/$defs/name");
}

void Walk::note_patterns(const json& schema, const std::string& where) {
  const auto pattern = schema.find("pattern");
  if (pattern != schema.end()) {
    check<ConfigError>(pattern->is_string(), where, ": pattern, expected a text");
    patterns_.push_back({join(where, "/pattern"), pattern->get<std::string>()});
  }
  const auto names = schema.find("patternProperties");
  if (names == schema.end() || !names->is_object()) return;
  for (const auto& [name, value] : names->items()) {
    patterns_.push_back({join(where, "/patternProperties"), name});
  }
}

// A schema, or a list or an object of them.
void Walk::check_children(const json& value, bool holds_many, const std::string& where, int depth) {
  if (!holds_many) return check_one(value, where, depth);
  check<ConfigError>(value.is_structured(), where, ", expected a list or an object of schemas");
  for (const auto& [name, child] : value.items()) {
    check_one(child, join(where, "/", name), depth);
  }
}

void Walk::check_one(const json& schema, const std::string& where, int depth) {
  if (schema.is_boolean()) return;
  check<ConfigError>(schema.is_object(), where, ", expected an object, true or false");
  check<ConfigError>(depth < kMostDepth, where, ": nested deeper than ", kMostDepth);
  check<ConfigError>(depth == 0 || !schema.contains("$id"), where,
                     ": $id is not supported inside a schema; leave it out");
  const auto alone = std::ranges::find_if(
      kAlone, [&](std::string_view name) { return schema.contains(std::string(name)); });
  alone != kAlone.end() ? check_alone(schema, *alone, where) : check_typed(schema, where);
  check_reference(schema, where);
  note_patterns(schema, where);
  for (const auto& [name, value] : schema.items()) {
    const bool holds_many = many_schemas().contains(name);
    if (!holds_many && !single_schemas().contains(name)) continue;
    check_children(value, holds_many, join(where, "/", name), depth + 1);
  }
  if (const auto one_of = schema.find("oneOf"); one_of != schema.end()) {
    check_one_of(*one_of, root_, join(where, "/oneOf"));
  }
}

json parse_schema(const std::string& text) {
  core::JsonLimits limits;
  limits.max_depth = 2 * kMostDepth + 8;
  try {
    return core::parse_json(text, "schema", limits);
  } catch (const core::FormatError& error) {
    core::fail<ConfigError>(error.what());
  }
}

// Sources of a structural tag stand in members of these names.
void check_sources_in(const json& value, std::vector<SchemaPattern>& patterns) {
  for (const auto& [name, child] : value.items()) {
    if (value.is_object() && name == "json_schema") {
      std::ranges::move(Walk(child).run(), std::back_inserter(patterns));
    } else if (value.is_object() && name == "pattern" && child.is_string()) {
      check_regex(child.get<std::string>());
    } else if (value.is_object() && name == "grammar" && child.is_string()) {
      check_gbnf(child.get<std::string>());
    } else if (child.is_structured()) {
      check_sources_in(child, patterns);
    }
  }
}

}  // namespace

std::vector<SchemaPattern> check_schema(const std::string& text) {
  const json schema = parse_schema(text);
  return Walk(schema).run();
}

std::vector<SchemaPattern> check_tag(const std::string& text) {
  std::vector<SchemaPattern> patterns;
  check_sources_in(parse_schema(text), patterns);
  return patterns;
}

}  // namespace weft::grammar
