#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/io/tensor_file.h"

namespace weft::models {

/// Typed access to a GGUF's keys, with messages that name the file and the key.
class GgufKeys {
 public:
  explicit GgufKeys(const io::TensorFile& file) : file_(file) {}

  const std::string& path() const { return file_.path(); }
  bool has(const std::string& key) const { return file_.metadata().count(key) != 0; }
  /// Each throws FormatError if the key is missing or of another type.
  int64_t integer(const std::string& key) const;
  double real(const std::string& key) const;
  std::string text(const std::string& key) const;
  /// The same with a value for a missing key.
  int64_t integer_or(const std::string& key, int64_t fallback) const;
  double real_or(const std::string& key, double fallback) const;
  std::string text_or(const std::string& key, const std::string& fallback) const;
  bool flag_or(const std::string& key, bool fallback) const;
  const std::vector<std::string>& texts(const std::string& key) const;
  /// Integers of either sign, or nothing for a missing key.
  std::optional<std::vector<int64_t>> integers(const std::string& key) const;
  /// Whether a key that is there has a list of integers.
  bool is_list(const std::string& key) const;
  const std::vector<bool>& flags(const std::string& key) const;
  const std::vector<double>& reals(const std::string& key) const;

 private:
  const io::MetaValue& value(const std::string& key) const;
  [[noreturn]] void fail_type(const std::string& key, const char* expected) const;

  const io::TensorFile& file_;
};

/// A tensor of `length` float32 numbers that belongs to the configuration. Throws FormatError for
/// another type or shape, IoError.
std::vector<float> read_floats(const io::TensorFile& file, const std::string& name, int64_t length);

}  // namespace weft::models
