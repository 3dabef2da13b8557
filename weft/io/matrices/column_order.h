#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/shard/split.h"

namespace weft::io {

/// The columns of a matrix that a file has in another order than the model, as the model's in equal
/// runs: where the file has each. Units of `in_unit` columns can't be read in parts, so of runs
/// that lie inside of such a unit all of it is read.
std::vector<shard::Range> stored_runs(const std::vector<shard::Range>& runs, int64_t in_unit,
                                      const std::string& where);

/// Columns of the model, whole runs, as places in what stored_runs() has of all.
std::vector<shard::Range> within_stored_runs(const std::vector<shard::Range>& wanted,
                                             const std::vector<shard::Range>& runs,
                                             int64_t in_unit);

}  // namespace weft::io
