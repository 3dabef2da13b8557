#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/io/shard_info/param_sources.h"
#include "weft/io/shard_info/shard_plan.h"

namespace weft::io {

/// Every rank's recipe for one parameter (a single one if all ranks hold the same): its steps in
/// order. Throws FormatError, ShapeError or ConfigError beginning with `where`.
std::vector<ShardRecipe> apply_steps(const ParamSources& param, int64_t num_ranks,
                                     const FunctionTable& functions, const std::string& where);

}  // namespace weft::io
