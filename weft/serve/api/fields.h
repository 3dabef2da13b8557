#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace weft::serve {

/// The members of a request's object. Absent and null are the same. Every method throws ApiError,
/// 400, naming the field, for a value of another type or out of range.
class Fields {
 public:
  /// `object`, which must outlive this, is what `where` names; empty: the whole body. Throws
  /// ApiError, 400, if it is none.
  explicit Fields(const nlohmann::json& object, const std::string& where = "");

  /// Null if it is absent.
  const nlohmann::json* get(const std::string& name);
  std::optional<double> number(const std::string& name, double low, double high);
  std::optional<int64_t> integer(const std::string& name, int64_t low, int64_t high);
  std::optional<bool> boolean(const std::string& name);
  std::optional<std::string> string(const std::string& name);
  /// A text or a list of at most `most` of them.
  std::vector<std::string> strings(const std::string& name, size_t most);
  /// Refuses a field that is there, unless it has the value that changes nothing.
  void refuse_unless(const std::string& name, const nlohmann::json& harmless);
  /// Members that were asked for by none of these.
  std::vector<std::string> unknown() const;

 private:
  const nlohmann::json& object_;
  std::set<std::string> known_;
};

}  // namespace weft::serve
