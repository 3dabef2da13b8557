#pragma once

#include "weft/models/config/config.h"
#include "weft/train/plan/model_sizes.h"

namespace weft::train {

/// What plans know of a model; of one with experts as if all its layers were plain.
ModelSizes sizes_of(const models::ModelConfig& config);

}  // namespace weft::train
