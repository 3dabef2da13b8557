#pragma once

#include <optional>
#include <string>
#include <vector>

namespace weft::io {

/// What the `*`s of `pattern` stand for in `name`, if it fits: each `*` is one dotted segment of
/// digits. Nothing else is special.
std::optional<std::vector<std::string>> match_pattern(const std::string& pattern,
                                                      const std::string& name);

/// `pattern` with its `*`s replaced in order, or nothing if their number differs.
std::optional<std::string> fill_pattern(const std::string& pattern,
                                        const std::vector<std::string>& numbers);

/// A text that a name and all patterns that fit it have in common: every segment of digits is a
/// `*`. To look patterns and names up by.
std::string masked_name(const std::string& name);

/// How many `*` segments a pattern has.
size_t num_stars(const std::string& pattern);

}  // namespace weft::io
