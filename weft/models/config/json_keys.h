#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "weft/core/json.h"

namespace weft::models {

/// No config.json or adapter_config.json is longer.
inline constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

/// Typed access to the members of a JSON object, with messages that name the file and the key. Null
/// counts as missing: Hugging Face writes it for "default". All throw FormatError for a value of
/// another type.
class JsonKeys {
 public:
  /// Keeps a reference to `json`. `where` begins messages.
  JsonKeys(const core::Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  /// Null if there is none.
  const core::Json* find(const char* key) const;
  bool has(const char* key) const { return find(key) != nullptr; }
  /// True if the key is there and says null.
  bool is_null(const char* key) const;
  /// Throws FormatError for a missing key.
  int64_t integer(const char* key) const;
  double real(const char* key) const;
  std::string text(const char* key) const;
  std::vector<double> reals(const char* key) const;
  /// The same with a value for a missing key.
  int64_t integer_or(const char* key, int64_t fallback) const;
  double real_or(const char* key, double fallback) const;
  std::string text_or(const char* key, const std::string& fallback) const;
  bool flag_or(const char* key, bool fallback) const;

 private:
  const core::Json& require(const char* key) const;
  std::string place(const char* key) const { return where_ + ": " + key; }

  const core::Json& json_;
  std::string where_;
};

}  // namespace weft::models
