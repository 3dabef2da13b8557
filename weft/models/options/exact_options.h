#pragma once

#include "weft/models/config/config.h"

// Which models are trained with the same bits on any number of ranks: known from their sizes
// alone, so that a plan can say so before there are weights.
namespace weft::models {

/// How errors about it begin.
inline constexpr char kExactTraining[] =
    "models: training with the same bits on any number of ranks";

/// Whether exact training knows all options of a model.
bool has_exact_options(const ModelConfig& config);

/// Throws ConfigError, "models: training with the same bits …", for a model with others.
void check_exact_options(const ModelConfig& config);

}  // namespace weft::models
