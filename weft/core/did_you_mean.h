#pragma once

#include <string>
#include <vector>

namespace weft::core {

/// " (did you mean 'x'?)" for the name nearest to `word`, or nothing if none is within two typing
/// errors (a letter more, less or changed, or two swapped) and half of the letters.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& names);

}  // namespace weft::core
