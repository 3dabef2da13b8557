#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/io/shard_info/shard_info.h"

// What the readers of the forms of shard_info.json share. They throw FormatError beginning with
// `where`.

namespace weft::io {

/// "WHERE: parameter 'NAME'".
std::string parameter_where(const std::string& where, const std::string& name);
/// Sizes of at least 0 whose product is below 2^63.
std::vector<int64_t> read_shape(const nlohmann::json& value, const std::string& where);
/// A type's name, safetensors' or TVM's.
Dtype read_dtype(const nlohmann::json& value, const std::string& where);
/// An integer, a text or a list of integers.
Argument read_argument(const nlohmann::json& value, const std::string& where);
/// Checks that it is a list of no more steps than are allowed.
void check_steps(const nlohmann::json& value, const std::string& where);
/// TVM's, its two older and MLC's forms.
ShardInfo read_foreign(const nlohmann::json& root, const std::string& where);

}  // namespace weft::io
