#pragma once

#include <string>
#include <vector>

#include "weft/cli/options.h"
#include "weft/text/tokenizer/tokenizer.h"
#include "weft/train/config/read_config.h"
#include "weft/train/plan/model_sizes.h"

namespace weft::cli {

/// The configuration that the file and the flags give. Throws as train::read_train_config and,
/// without a file, ConfigError.
train::TrainConfig read_config(const PlannedRun& run);

/// The tokenizer that a configuration names: [model] tokenizer (a folder, tokenizer.json or .gguf),
/// else that of [model] from, else that of the model of set-up. Throws FormatError, ConfigError.
text::Tokenizer tokenizer_of(const train::TrainConfig& config);

/// The sizes of the model that training starts from or makes new, with the vocabulary's size.
/// Completes [model]. Throws ConfigError, FormatError; ConfigError for a model with experts, and
/// for one that train.exact does not know.
train::ModelSizes model_sizes(train::TrainConfig& config);

}  // namespace weft::cli
