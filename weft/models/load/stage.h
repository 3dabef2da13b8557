#pragma once

#include <cstdint>
#include <optional>

#include "weft/shard/split.h"

namespace weft::models {

/// Which consecutive layers of a model a rank of a pipeline holds; none: all of them. The embedding
/// is on the stage of the first layer, last norm and head are on that of the last; a tied embedding
/// is on both. Parameters have the names of the whole model's.
using StageLayers = std::optional<shard::Range>;

/// The same of a model whose number of layers is known.
struct Stage {
  shard::Range layers;
  bool is_first = true;
  bool is_last = true;
};

/// Throws ConfigError unless the layers are some of a model's `num_layers`.
Stage make_stage(const StageLayers& layers, int64_t num_layers);

}  // namespace weft::models
