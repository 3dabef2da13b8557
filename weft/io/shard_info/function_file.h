#pragma once

#include <string>
#include <string_view>

#include "weft/io/shard_info/function_table.h"

namespace weft::io {

/// Adds the names of a file of functions to `table`: {"NAME": ["FUNCTION", ARGUMENT…], …}, where
/// arguments are integers, texts and lists of integers. What a shard_info.json gives to NAME comes
/// after them, or where "$1", "$2"… stand (FunctionBinding). Throws FormatError beginning with
/// `where`; ConfigError for names that are taken and functions that there are not.
void parse_functions(std::string_view text, const std::string& where, FunctionTable& table);
/// The same of a file. Also throws IoError.
void read_functions(const std::string& path, FunctionTable& table);

}  // namespace weft::io
