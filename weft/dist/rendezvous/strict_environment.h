#pragma once

#include <charconv>
#include <optional>
#include <string>

#include "weft/core/error.h"
#include "weft/dist/rendezvous/rank_info.h"

namespace weft::dist {

/// Reads variables strictly: a number is a whole decimal integer within limits, or an error. An
/// empty text counts as nothing where a text is asked for.
class StrictEnvironment {
 public:
  /// `lookup` must outlive this.
  explicit StrictEnvironment(const EnvLookup& lookup) : lookup_(lookup) {}

  std::optional<std::string> text(const std::string& name) const { return lookup_(name); }
  std::string text_or_empty(const std::string& name) const { return lookup_(name).value_or(""); }
  bool has(const std::string& name) const { return lookup_(name).has_value(); }

  /// Throws ConfigError, naming the variable, if it is not set or no number within the limits.
  int integer(const std::string& name, int least, int most) const {
    using core::ConfigError;
    const auto value = lookup_(name);
    core::check<ConfigError>(
        value.has_value(), "dist.rank_info: ", name,
        ": expected an integer, got nothing; the launcher sets it together with the other "
        "variables of the job");
    int number = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, number);
    const bool whole = error == std::errc() && stop == end && !value->empty();
    core::check<ConfigError>(whole && number >= least && number <= most, "dist.rank_info: ", name,
                             ": expected an integer from ", least, " to ", most, ", got '", *value,
                             "'");
    return number;
  }

  int integer_or(const std::string& name, int least, int most, int otherwise) const {
    return has(name) ? integer(name, least, most) : otherwise;
  }

 private:
  const EnvLookup& lookup_;
};

}  // namespace weft::dist
