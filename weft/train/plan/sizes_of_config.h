#pragma once

#include "weft/models/config/config.h"
#include "weft/train/config/train_config.h"
#include "weft/train/plan/model_sizes.h"

namespace weft::train {

/// What plans know of a model; of one with experts as if all its layers were plain.
ModelSizes sizes_of(const models::ModelConfig& config);

/// A new model of [model], with `vocab_size` rows where it gives no number of its own, and what its
/// family's models have; not yet checked. models::complete_config checks it.
models::ModelConfig new_model_config(const ModelSection& model, int64_t vocab_size);

}  // namespace weft::train
