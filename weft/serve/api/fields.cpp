#include "weft/serve/api/fields.h"

#include <cmath>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/serve/api/api_error.h"

namespace weft::serve {
namespace {

constexpr size_t kShownBytes = 60;

[[noreturn]] void refuse_value(const std::string& name, const nlohmann::json& value,
                               const std::string& expected) {
  std::string got = core::dump_json(value);
  if (got.size() > kShownBytes) got = core::join("a value of ", got.size(), " bytes");
  throw ApiError::invalid(name, core::join("got ", got, ", expected ", expected));
}

}  // namespace

Fields::Fields(const nlohmann::json& object, const std::string& where) : object_(object) {
  if (object.is_object()) return;
  throw ApiError::invalid(where,
                          where.empty() ? "the body is no JSON object" : "expected an object");
}

const nlohmann::json* Fields::get(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> Fields::number(const std::string& name, double low, double high) {
  const nlohmann::json* const value = get(name);
  if (value == nullptr) return std::nullopt;
  const bool is_number = value->is_number();
  const double number = is_number ? value->get<double>() : 0;
  if (is_number && std::isfinite(number) && number >= low && number <= high) return number;
  refuse_value(name, *value, core::join("a number from ", low, " to ", high));
}

std::optional<int64_t> Fields::integer(const std::string& name, int64_t low, int64_t high) {
  const nlohmann::json* const value = get(name);
  if (value == nullptr) return std::nullopt;
  const std::string expected = core::join("a whole number from ", low, " to ", high);
  try {
    const int64_t number = core::to_int64(*value, name);
    if (number >= low && number <= high) return number;
  } catch (const core::FormatError&) {
    // Said below, with the range.
  }
  refuse_value(name, *value, expected);
}

std::optional<bool> Fields::boolean(const std::string& name) {
  const nlohmann::json* const value = get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse_value(name, *value, "true or false");
  return value->get<bool>();
}

std::optional<std::string> Fields::string(const std::string& name) {
  const nlohmann::json* const value = get(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse_value(name, *value, "a string");
  return value->get<std::string>();
}

std::vector<std::string> Fields::strings(const std::string& name, size_t most) {
  const nlohmann::json* const value = get(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  const std::string expected = core::join("a string or at most ", most, " of them in a list");
  if (!value->is_array() || value->size() > most) refuse_value(name, *value, expected);
  std::vector<std::string> texts;
  for (const nlohmann::json& each : *value) {
    if (!each.is_string()) refuse_value(name, each, expected);
    texts.push_back(each.get<std::string>());
  }
  return texts;
}

void Fields::refuse_unless(const std::string& name, const nlohmann::json& harmless) {
  const nlohmann::json* const value = get(name);
  const bool is_empty = value != nullptr && value->is_structured() && value->empty();
  if (value == nullptr || is_empty || *value == harmless) return;
  throw ApiError::invalid(name, "not supported by this server; leave it out");
}

std::vector<std::string> Fields::unknown() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : object_.items()) {
    if (!known_.contains(name)) names.push_back(name);
  }
  return names;
}

}  // namespace weft::serve
