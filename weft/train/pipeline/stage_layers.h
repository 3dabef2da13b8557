#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/shard/split.h"

namespace weft::train {

/// What the parts of a model cost to compute, beside each other.
struct LayerCosts {
  /// Of one layer.
  double layer = 1;
  /// Of what comes before the first layer and after the last.
  double before = 0;
  double behind = 0;
};

/// How many layers each stage of a pipeline gets, so that the stage that costs the most costs as
/// little as can be: one each, then one by one to the stage that costs the least so far, of equals
/// to the first. Pure arithmetic. Throws ConfigError unless there is a layer for each stage.
std::vector<int64_t> balance_layers(int64_t num_layers, int64_t num_stages,
                                    const LayerCosts& costs);

/// Throws ConfigError, beginning with `where`, unless `layers` says for each of `num_stages` stages
/// how many of the `num_layers` layers it has, at least one.
void check_stage_layers(const std::vector<int64_t>& layers, int64_t num_stages, int64_t num_layers,
                        const std::string& where);

/// The layers of one stage.
shard::Range layers_of_stage(const std::vector<int64_t>& layers, int64_t stage);

}  // namespace weft::train
