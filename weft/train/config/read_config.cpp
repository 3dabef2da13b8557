#include "weft/train/config/read_config.h"

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "weft/core/did_you_mean.h"
#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/train/config/config_fields.h"

namespace weft::train {
namespace {

using core::ConfigError;
using core::join;

constexpr uint64_t kMaxTomlBytes = 1 << 20;

std::string place(const std::string& path, const toml::source_region& region) {
  return join(path, ":", region.begin.line, ":", region.begin.column);
}

const ConfigField* find_field(const std::vector<ConfigField>& fields, const std::string& name) {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const ConfigField& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

std::vector<std::string> section_names(const std::vector<ConfigField>& fields) {
  std::vector<std::string> names;
  for (const ConfigField& field : fields) {
    if (names.empty() || names.back() != field.section()) {
      names.push_back(field.section());
    }
  }
  return names;
}

std::vector<std::string> keys_of(const std::vector<ConfigField>& fields,
                                 const std::string& section) {
  std::vector<std::string> keys;
  for (const ConfigField& field : fields) {
    if (field.section() == section) keys.push_back(field.key());
  }
  return keys;
}

std::string comma_list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

// A near key of the same section, else the same key in another one.
std::string suggest_key(const std::vector<ConfigField>& fields, const std::string& section,
                        const std::string& key) {
  for (const ConfigField& field : fields) {
    if (field.key() == key) return " (did you mean '" + key + "' of [" + field.section() + "]?)";
  }
  return core::did_you_mean(key, keys_of(fields, section));
}

[[noreturn]] void fail_key(const std::vector<ConfigField>& fields, const std::string& section,
                           const std::string& key, const std::string& where) {
  core::fail<ConfigError>(where, ": ", section, ".", core::quote(key), ": unknown key",
                          suggest_key(fields, section, key), "; the keys of [", section, "] are ",
                          comma_list(keys_of(fields, section)));
}

[[noreturn]] void fail_section(const std::vector<ConfigField>& fields, const std::string& name,
                               const std::string& where) {
  const std::vector<std::string> names = section_names(fields);
  std::string suggestion = core::did_you_mean(name, names);
  if (suggestion.empty()) suggestion = suggest_key(fields, "", name);
  core::fail<ConfigError>(where, ": ", core::quote(name), ": unknown section", suggestion,
                          "; the sections are ", comma_list(names));
}

std::string type_text(const toml::node& node) {
  if (node.is_table()) return "a table";
  if (node.is_array()) return "a list";
  if (node.is_string()) return "a text";
  if (node.is_boolean()) return "true or false";
  if (node.is_number()) return "a number";
  return "a date or time";
}

void set_list(const ConfigField& field, const toml::array& list, const std::string& where) {
  const auto refuse = [&](const toml::node& node) {
    core::fail<ConfigError>(where, ": expected ", field.expected(), ", got ", type_text(node),
                            " in the list");
  };
  if (field.is_list_of_numbers()) {
    std::vector<double> numbers;
    for (const toml::node& node : list) {
      if (!node.is_number()) refuse(node);
      numbers.push_back(*node.value<double>());
    }
    return set_numbers(field, numbers, where);
  }
  std::vector<std::string> texts;
  for (const toml::node& node : list) {
    if (!node.is_string()) refuse(node);
    texts.push_back(*node.value<std::string>());
  }
  set_texts(field, texts, where);
}

void set_node(const ConfigField& field, const toml::node& node, const std::string& where) {
  if (const auto* flag = node.as_boolean()) return set_bool(field, flag->get(), where);
  if (const auto* whole = node.as_integer()) return set_whole(field, whole->get(), where);
  if (const auto* number = node.as_floating_point()) return set_number(field, number->get(), where);
  if (const auto* text = node.as_string()) return set_text(field, text->get(), where);
  if (const auto* list = node.as_array()) return set_list(field, *list, where);
  core::fail<ConfigError>(where, ": expected ", field.expected(), ", got ", type_text(node));
}

void apply_section(const std::vector<ConfigField>& fields, const std::string& section,
                   const toml::table& table, const std::string& path, TrainConfig& config) {
  for (const auto& [key, node] : table) {
    const std::string name = section + "." + std::string(key.str());
    const ConfigField* field = find_field(fields, name);
    if (field == nullptr) {
      fail_key(fields, section, std::string(key.str()), place(path, key.source()));
    }
    const std::string source = place(path, node.source());
    set_node(*field, node, source + ": " + name);
    config.sources[name] = source;
  }
}

toml::table parse_toml(const std::string& path) {
  try {
    return toml::parse(core::read_text_file(path, kMaxTomlBytes), path);
  } catch (const toml::parse_error& error) {
    core::fail<ConfigError>(place(path, error.source()), ": not valid TOML: ", error.description());
  }
}

void apply_file(const std::vector<ConfigField>& fields, const std::string& path,
                TrainConfig& config) {
  const toml::table root = parse_toml(path);
  const std::vector<std::string> names = section_names(fields);
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    const std::string where = place(path, key.source());
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      fail_section(fields, name, where);
    }
    const toml::table* table = node.as_table();
    core::check<ConfigError>(table != nullptr, where, ": ", name, ": expected a section, got ",
                             type_text(node), "; write [", name, "] above its keys");
    apply_section(fields, name, *table, path, config);
  }
}

void apply_value(const ConfigField& field, const std::string& text, const std::string& source,
                 TrainConfig& config) {
  set_from_text(field, text, source + ": " + field.name);
  config.sources[field.name] = source;
}

}  // namespace

std::string environment_name(const std::string& name) {
  const std::string mesh = "mesh.";
  std::string variable = "WEFT_" + (name.starts_with(mesh) ? name.substr(mesh.size()) : name);
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return c == '.' ? '_' : std::toupper(c); });
  return variable;
}

TrainConfig read_train_config(const std::string& path, const std::vector<GivenValue>& flags) {
  TrainConfig config;
  const std::vector<ConfigField> fields = config_fields(config);
  apply_file(fields, path, config);
  for (const ConfigField& field : fields) {
    const std::string variable = environment_name(field.name);
    const char* text = std::getenv(variable.c_str());
    if (text != nullptr) apply_value(field, text, variable, config);
  }
  for (const GivenValue& flag : flags) {
    const ConfigField* field = find_field(fields, flag.name);
    core::check<core::InternalError>(field != nullptr, "train.read_train_config: no value '",
                                     flag.name, "'");
    apply_value(*field, flag.text, flag.source, config);
  }
  return config;
}

}  // namespace weft::train
