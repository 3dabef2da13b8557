#include "weft/train/config/config_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/train/config/config_fields.h"

namespace weft::train {
namespace {

using core::FormatError;
using core::Json;

void set_list(const ConfigField& field, const Json& list, const std::string& where) {
  if (field.is_list_of_numbers()) {
    std::vector<double> numbers;
    for (const Json& each : list) numbers.push_back(core::to_double(each, where));
    return set_numbers(field, numbers, where);
  }
  std::vector<std::string> texts;
  for (const Json& each : list) texts.push_back(core::to_string(each, where));
  set_texts(field, texts, where);
}

void set_json(const ConfigField& field, const Json& value, const std::string& where) {
  if (value.is_boolean()) return set_bool(field, value.get<bool>(), where);
  if (value.is_number_integer()) return set_whole(field, core::to_int64(value, where), where);
  if (value.is_number()) return set_number(field, value.get<double>(), where);
  if (value.is_string()) return set_text(field, value.get<std::string>(), where);
  if (value.is_array()) return set_list(field, value, where);
  core::fail<core::ConfigError>(where, ": expected ", field.expected(), ", got ",
                                value.type_name());
}

}  // namespace

Json config_to_json(const TrainConfig& config) {
  TrainConfig copy = config;
  Json json = Json::object();
  for (const ConfigField& field : config_fields(copy)) {
    std::visit([&](const auto* value) { json[field.section()][field.key()] = *value; },
               field.value);
  }
  return json;
}

TrainConfig config_from_json(const Json& json, const std::string& where) {
  TrainConfig config;
  const std::vector<ConfigField> fields = config_fields(config);
  core::check<FormatError>(json.is_object(), where, ": expected an object of sections, got ",
                           json.type_name());
  for (const auto& [section, keys] : json.items()) {
    core::check<FormatError>(keys.is_object(), where, ": ", core::quote(section),
                             ": expected an object, got ", keys.type_name());
    for (const auto& [key, value] : keys.items()) {
      const std::string name = section + "." + key;
      const auto found = std::find_if(fields.begin(), fields.end(),
                                      [&](const ConfigField& each) { return each.name == name; });
      core::check<FormatError>(found != fields.end(), where, ": ", core::quote(name),
                               ": unknown key; the file is of another version of weft");
      set_json(*found, value, where + ": " + name);
    }
  }
  return config;
}

}  // namespace weft::train
