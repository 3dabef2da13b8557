#pragma once

#include <string>
#include <vector>

namespace weft::cli {

/// The API keys of a file with one in each line; none of an empty path. Throws FormatError for a
/// file without any, FormatError or IoError as core::read_text_file.
std::vector<std::string> read_keys(const std::string& path);

}  // namespace weft::cli
