#include "weft/grammar/schema_apart.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "weft/core/error.h"

namespace weft::grammar {
namespace {

using nlohmann::json;
using Types = std::set<std::string>;

// A schema that says nothing.
const json& nothing() {
  static const json empty = json::object();
  return empty;
}

Types all_types() { return {"object", "array", "string", "number", "integer", "boolean", "null"}; }

// Of whole numbers both, as a schema of either allows them.
Types types_of_value(const json& value) {
  if (value.is_object()) return {"object"};
  if (value.is_array()) return {"array"};
  if (value.is_string()) return {"string"};
  if (value.is_boolean()) return {"boolean"};
  if (value.is_null()) return {"null"};
  const bool is_whole =
      value.is_number_integer() || std::trunc(value.get<double>()) == value.get<double>();
  return is_whole ? Types{"number", "integer"} : Types{"number"};
}

// Any where the schema says none, or not as it should.
Types named_types(const json& schema) {
  const auto found = schema.find("type");
  if (found == schema.end()) return all_types();
  const json names = found->is_array() ? *found : json::array({*found});
  Types types;
  for (const json& name : names) {
    if (!name.is_string()) return all_types();
    types.insert(name.get<std::string>());
  }
  if (types.contains("number")) types.insert("integer");
  return types;
}

bool are_disjoint(const Types& a, const Types& b) {
  return std::ranges::none_of(a, [&](const std::string& type) { return b.contains(type); });
}

// The values that a schema lists; null: it doesn't.
const json* listed(const json& schema, json& room) {
  if (const auto found = schema.find("const"); found != schema.end()) {
    room = json::array({*found});
    return &room;
  }
  const auto found = schema.find("enum");
  return found != schema.end() && found->is_array() ? &*found : nullptr;
}

const json& member(const json& schema, const char* name) {
  const auto found = schema.find(name);
  return found != schema.end() && found->is_object() ? *found : nothing();
}

bool is_closed(const json& schema) {
  const auto found = schema.find("additionalProperties");
  return found != schema.end() && found->is_boolean() && !found->get<bool>() &&
         !schema.contains("patternProperties");
}

// Compares schemas of one root.
class Comparison {
 public:
  explicit Comparison(const json& root) : root_(root) {}

  // False where it can't tell.
  bool are_apart(const json& a, const json& b, int depth = 0);

 private:
  // What references, and lists of one schema, lead to.
  const json& plain(const json& schema) const;
  const json* referred(const std::string& path) const;
  bool are_objects_apart(const json& a, const json& b, int depth);
  bool requires_apart(const json& a, const json& b, int depth);

  const json& root_;
  // So that what is nested many ways takes no long time.
  int budget_ = 20'000;
};

const json* Comparison::referred(const std::string& path) const {
  if (!path.starts_with('#')) return nullptr;
  try {
    return &root_.at(json::json_pointer(path.substr(1)));
  } catch (const json::exception&) {
    return nullptr;
  }
}

const json& Comparison::plain(const json& schema) const {
  constexpr int kMostHops = 16;
  const json* at = &schema;
  for (int hop = 0; hop < kMostHops && at->is_object(); ++hop) {
    const auto reference = at->find("$ref");
    const auto all = at->find("allOf");
    if (reference != at->end() && reference->is_string()) {
      at = referred(reference->get<std::string>());
      if (at == nullptr) return nothing();
    } else if (all != at->end() && all->is_array() && all->size() == 1) {
      at = &all->front();
    } else {
      return *at;
    }
  }
  return nothing();
}

// The alternatives of a union; null: it is none.
const json* alternatives(const json& schema) {
  for (const char* name : {"anyOf", "oneOf"}) {
    const auto found = schema.find(name);
    if (found != schema.end() && found->is_array()) return &*found;
  }
  return nullptr;
}

bool Comparison::are_apart(const json& first, const json& second, int depth) {
  constexpr int kMostDepth = 16;
  if (--budget_ < 0 || depth > kMostDepth) return false;
  const json &a = plain(first), &b = plain(second);
  if (!a.is_object() || !b.is_object()) return false;
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    const json* const each = alternatives(*one);
    if (each == nullptr) continue;
    return std::ranges::all_of(*each, [&, other = other](const json& branch) {
      return are_apart(branch, *other, depth + 1);
    });
  }
  json room_a, room_b;
  const json *const list_a = listed(a, room_a), *const list_b = listed(b, room_b);
  if (list_a == nullptr && list_b == nullptr) {
    return are_disjoint(named_types(a), named_types(b)) || are_objects_apart(a, b, depth);
  }
  const json& values = list_a != nullptr ? *list_a : *list_b;
  const json* const others = list_a != nullptr ? list_b : nullptr;
  return std::ranges::none_of(values, [&](const json& value) {
    if (others != nullptr) return std::ranges::find(*others, value) != others->end();
    return !are_disjoint(types_of_value(value), named_types(list_a != nullptr ? b : a));
  });
}

bool Comparison::are_objects_apart(const json& a, const json& b, int depth) {
  const Types types_a = named_types(a), types_b = named_types(b);
  const bool share_objects_alone = std::ranges::all_of(types_a, [&](const std::string& type) {
    return type == "object" || !types_b.contains(type);
  });
  return share_objects_alone && (requires_apart(a, b, depth) || requires_apart(b, a, depth));
}

// Whether what has the members that a requires is none of b's.
bool Comparison::requires_apart(const json& a, const json& b, int depth) {
  const auto required = a.find("required");
  if (required == a.end() || !required->is_array()) return false;
  const json &own = member(a, "properties"), &other = member(b, "properties");
  return std::ranges::any_of(*required, [&](const json& name) {
    if (!name.is_string()) return false;
    const auto here = own.find(name.get<std::string>()),
               there = other.find(name.get<std::string>());
    if (there == other.end()) return is_closed(b);
    return here != own.end() && are_apart(*here, *there, depth + 1);
  });
}

}  // namespace

void check_one_of(const json& branches, const json& root, const std::string& where) {
  core::check<core::ConfigError>(branches.is_array() && !branches.empty(), where,
                                 ", expected a list of schemas");
  Comparison comparison(root);
  for (size_t i = 0; i < branches.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      core::check<core::ConfigError>(
          comparison.are_apart(branches[j], branches[i]), where, ": ", j, " and ", i,
          " may both hold, expected schemas that are plainly apart: by their type, or by a const "
          "of a member that they require; or anyOf, which takes any");
    }
  }
}

}  // namespace weft::grammar
