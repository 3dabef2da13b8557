#pragma once

#include <cstdint>

#include "weft/train/config/train_config.h"
#include "weft/train/trainer/run_model.h"

namespace weft::train {

/// Checks from headers alone, before data are tokenized and weights are read, that a run can train
/// its model: what kAll trains is stored as plain numbers, each stage has layers for the adapters
/// of kAdapters, the model has as many positions as sequences have tokens, train.exact knows it,
/// and each of the tokenizer's `vocab_size` tokens has a row (0: not known yet). `config` has
/// passed check_config and check_model_fits. Not collective. Throws ConfigError, FormatError.
void check_run(const TrainConfig& config, TrainedPart part, int64_t vocab_size = 0);

}  // namespace weft::train
