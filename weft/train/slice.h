#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/shard/layout.h"

namespace weft::train {

/// Which elements of a whole parameter some tensor of a rank holds: first the parameter is cut over
/// the model axis, then this rank's shard, flattened row-major, over replica and data.
struct Slice {
  /// The parameter's name, e.g. "model.layers.0.mlp.up_proj.weight".
  std::string name;
  /// The whole's sizes.
  std::vector<int64_t> sizes;
  /// How the model axis cuts it; none: every rank of that axis holds all.
  std::optional<shard::Layout> cut;
  /// This rank's place on the model axis.
  int64_t model_rank = 0;
  /// Elements of the flattened shard.
  shard::Range elements;
  /// An earlier stage of the pipeline holds the parameter too (a tied embedding): it counts and
  /// saves the elements.
  bool is_copy = false;
};

}  // namespace weft::train
