#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "weft/train/config/train_config.h"

namespace weft::train {

/// Numbers that a field takes.
struct FieldLimits {
  double low = 0;
  double high = 0;
  /// `low` itself is not among them.
  bool is_above_low = false;
};

/// One value of a TrainConfig: the row that reading, writing and checking work by.
struct ConfigField {
  using Value = std::variant<bool*, int64_t*, double*, std::string*, std::vector<int64_t>*,
                             std::vector<double>*, std::vector<std::string>*>;
  /// "section.key".
  std::string name;
  /// The member.
  Value value;
  /// For numbers, each of a list.
  FieldLimits limits;
  /// What a text or a whole number may be; empty: anything within the limits.
  std::vector<std::string> choices;

  std::string section() const { return name.substr(0, name.find('.')); }
  std::string key() const { return name.substr(name.find('.') + 1); }
  bool is_list_of_numbers() const {
    return std::holds_alternative<std::vector<int64_t>*>(value) ||
           std::holds_alternative<std::vector<double>*>(value);
  }
  /// What is expected, e.g. "a whole number from 1 to 1024".
  std::string expected() const;
};

/// All values of `config`, in the order of its members. Valid as long as `config` is.
std::vector<ConfigField> config_fields(TrainConfig& config);

/// Sets a field; each checks the type's limits. `where` begins the message. Throw ConfigError.
void set_bool(const ConfigField& field, bool value, const std::string& where);
void set_whole(const ConfigField& field, int64_t value, const std::string& where);
void set_number(const ConfigField& field, double value, const std::string& where);
void set_text(const ConfigField& field, const std::string& value, const std::string& where);
void set_numbers(const ConfigField& field, const std::vector<double>& values,
                 const std::string& where);
void set_texts(const ConfigField& field, const std::vector<std::string>& values,
               const std::string& where);

/// Sets a field from what a flag or the environment holds: true or false, a number, a text; lists
/// are separated by commas. Throws ConfigError.
void set_from_text(const ConfigField& field, const std::string& text, const std::string& where);

}  // namespace weft::train
