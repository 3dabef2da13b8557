#include "weft/grammar/schema_object.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"

namespace weft::grammar {
namespace {

using core::check;
using core::ConfigError;
using nlohmann::json;

bool is_false(const json& schema, const char* name) {
  const auto found = schema.find(name);
  return found != schema.end() && found->is_boolean() && !found->get<bool>();
}

// Whether there may be members that `properties` does not name.
bool is_open(const json& schema) {
  if (schema.contains("patternProperties") || schema.contains("propertyNames")) return true;
  const char* const name =
      schema.contains("additionalProperties") ? "additionalProperties" : "unevaluatedProperties";
  return schema.contains(name) && !is_false(schema, name);
}

void check_required(const json& schema, const std::string& where) {
  const auto required = schema.find("required");
  if (required == schema.end()) return;
  const json properties = schema.value("properties", json::object());
  check<ConfigError>(required->is_array(), where, ": required, expected a list of names");
  for (const json& name : *required) {
    check<ConfigError>(name.is_string(), where, ": required, expected a list of names");
    check<ConfigError>(properties.contains(name.get<std::string>()), where, ": required ",
                       core::quote(name.get<std::string>()),
                       ", which properties lacks; say its schema there");
  }
}

// Ways to name members of which each would have to look at what the others allow.
void check_ways(const json& schema, const std::string& where) {
  const auto refuse_beside = [&](const char* name, const char* other) {
    if (!schema.contains(name) || !schema.contains(other) || is_false(schema, other)) return;
    core::fail<ConfigError>(where, ": ", name, " beside ", other,
                            ", expected one of them; both together are not supported");
  };
  for (const char* name : {"patternProperties", "propertyNames"}) {
    refuse_beside(name, "properties");
    refuse_beside(name, "unevaluatedProperties");
  }
  refuse_beside("patternProperties", "additionalProperties");
  refuse_beside("patternProperties", "propertyNames");
  const auto patterns = schema.find("patternProperties");
  check<ConfigError>(patterns == schema.end() || !patterns->is_object() || patterns->size() == 1,
                     where, ": patternProperties, expected one pattern; more are not supported");
  check<ConfigError>(!schema.contains("propertyNames") || !is_false(schema, "additionalProperties"),
                     where, ": propertyNames beside additionalProperties false, expected one");
}

// Names are texts, whatever a schema of them leaves out.
void check_names(const json& schema, const std::string& where) {
  const auto names = schema.find("propertyNames");
  if (names == schema.end()) return;
  const bool are_texts =
      names->is_object() && names->contains("type") && (*names)["type"] == "string";
  check<ConfigError>(are_texts, where, ": propertyNames, expected a schema of the type string");
}

// Members of any name may come twice, and count once.
void check_least(const json& schema, const std::string& where) {
  const auto least = schema.find("minProperties");
  if (least == schema.end() || !least->is_number_integer() || !is_open(schema)) return;
  const auto named = static_cast<int64_t>(schema.value("required", json::array()).size());
  check<ConfigError>(least->get<int64_t>() <= std::max<int64_t>(1, named), where,
                     ": minProperties ", least->get<int64_t>(),
                     " where names are free, expected at most ", std::max<int64_t>(1, named),
                     ", the number of required ones or 1: one name may come twice");
}

// A name has more spellings than one, which could bring a member a second time, as another.
void check_additional(const json& schema, const std::string& where) {
  if (!is_open(schema) || schema.value("properties", json::object()).empty()) return;
  core::fail<ConfigError>(
      where,
      ": properties beside additionalProperties other than false, expected one; leave the "
      "latter out: there are only the members that are named, then");
}

}  // namespace

void check_object(const json& schema, const std::string& where) {
  check_required(schema, where);
  check_ways(schema, where);
  check_names(schema, where);
  check_least(schema, where);
  check_additional(schema, where);
}

}  // namespace weft::grammar
