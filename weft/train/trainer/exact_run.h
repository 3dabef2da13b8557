#pragma once

#include "weft/train/config/train_config.h"
#include "weft/train/trainer/run_model.h"

namespace weft::train {

/// Checks from the configuration and the headers of model.from that a run with train.exact can have
/// the bits that it promises, before anything is read; nothing for a run without. Not collective.
/// Throws ConfigError for adapters, and as models::check_trains_exactly; FormatError, IoError.
void check_exact_run(const TrainConfig& config, TrainedPart part);

}  // namespace weft::train
