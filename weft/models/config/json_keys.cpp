#include "weft/models/config/json_keys.h"

#include <nlohmann/json.hpp>

#include "weft/core/error.h"

namespace weft::models {

const core::Json* JsonKeys::find(const char* key) const {
  const core::Json* value = core::find(json_, key, where_);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool JsonKeys::is_null(const char* key) const {
  const core::Json* value = core::find(json_, key, where_);
  return value != nullptr && value->is_null();
}

const core::Json& JsonKeys::require(const char* key) const {
  return core::require(json_, key, where_);
}

int64_t JsonKeys::integer(const char* key) const {
  return core::to_int64(require(key), place(key));
}

double JsonKeys::real(const char* key) const { return core::to_double(require(key), place(key)); }

std::string JsonKeys::text(const char* key) const {
  return core::to_string(require(key), place(key));
}

std::vector<double> JsonKeys::reals(const char* key) const {
  const core::Json& list = require(key);
  core::check<core::FormatError>(list.is_array(), place(key), ": expected a list of numbers");
  std::vector<double> numbers;
  for (const core::Json& number : list) numbers.push_back(core::to_double(number, place(key)));
  return numbers;
}

int64_t JsonKeys::integer_or(const char* key, int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double JsonKeys::real_or(const char* key, double fallback) const {
  return has(key) ? real(key) : fallback;
}

std::string JsonKeys::text_or(const char* key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

bool JsonKeys::flag_or(const char* key, bool fallback) const {
  return has(key) ? core::to_bool(require(key), place(key)) : fallback;
}

}  // namespace weft::models
