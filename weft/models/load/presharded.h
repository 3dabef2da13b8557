#pragma once

#include <optional>

#include "weft/io/shard_info/function_table.h"
#include "weft/io/shard_info/shard_info.h"
#include "weft/io/tensor_file.h"
#include "weft/models/load/weight_rules.h"

namespace weft::models {

/// Rules that join the pieces of a pre-sharded checkpoint and cut them anew, for any number of
/// ranks; nothing if `file` holds no pieces. How they were cut is what the file's metadata say
/// (`weft shard` writes them; the units of their cuts replace those in `rules`), else what the
/// model's own rules say of floating tensors (TVM's and MLC's names). Throws FormatError,
/// ConfigError, ShapeError as io::recut_info.
std::optional<io::ShardInfo> presharded_info(const io::TensorFile& file, WeightRules& rules,
                                             const io::FunctionTable& functions);

}  // namespace weft::models
