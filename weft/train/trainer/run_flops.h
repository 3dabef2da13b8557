#pragma once

#include "weft/dist/group.h"
#include "weft/models/config/config.h"
#include "weft/train/config/train_config.h"
#include "weft/train/trainer/run_model.h"

namespace weft::train {

/// Floating-point operations of a token's forward and backward in this run, by flops_per_token. Of
/// a layer's experts those count that a token goes through.
double run_flops_per_token(const TrainConfig& config, const models::ModelConfig& model,
                           TrainedPart part);

/// Floating-point operations per second of all ranks of the run: config.log.peak_flops, or what
/// a product of large matrices reaches on all ranks at the same time, in the run's dtype and by its
/// threads; takes a tenth of a second or two. Collective over `all`.
double run_peak_flops(const TrainConfig& config, const dist::Group& all);

}  // namespace weft::train
