#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/core/json.h"

namespace weft::text {

/// A value of a JSON file with its place, for messages. Keeps a reference to the value. What reads
/// a value throws FormatError when it is missing or of another type.
class JsonField {
 public:
  JsonField(const core::Json& value, std::string where)
      : value_(&value), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  const core::Json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  bool is_text() const { return value_->is_string(); }
  bool is_object() const { return value_->is_object(); }
  bool is_list() const { return value_->is_array(); }

  /// A member of an object.
  JsonField at(const std::string& key) const;
  /// A member that exists and is not null.
  std::optional<JsonField> find(const std::string& key) const;
  /// The members of a list.
  std::vector<JsonField> list() const;
  /// Throws ConfigError that names a member of an object other than these.
  void allow_only(std::initializer_list<std::string_view> keys) const;

  std::string text() const { return core::to_string(*value_, where_); }
  bool flag() const { return core::to_bool(*value_, where_); }
  int64_t integer() const { return core::to_int64(*value_, where_); }
  /// A text to put into others, so at most 32 bytes; throws ConfigError for a longer one.
  std::string short_text() const;
  /// A member or, if it is missing or null, another value.
  std::string text_or(const std::string& key, const std::string& other) const;
  bool flag_or(const std::string& key, bool other) const;

  /// The error of a value that is right but not supported.
  [[noreturn]] void refuse(const std::string& expected, const std::string& got) const;

 private:
  const core::Json* value_;
  std::string where_;
};

/// The steps of `field`: none if it is null, those of a Sequence (its members are in `list_key`)
/// one by one, also nested, else it itself. Throws ConfigError for more than 32.
std::vector<JsonField> steps_of(const JsonField& field, const std::string& list_key);

}  // namespace weft::text
