#pragma once

#include <string>

#include "weft/core/json.h"
#include "weft/train/config/train_config.h"

namespace weft::train {

/// The configuration as an object of sections, with every value: what a checkpoint holds. Where
/// values came from is left out.
core::Json config_to_json(const TrainConfig& config);

/// The inverse; what is missing has its default. Throws FormatError for an unknown key, ConfigError
/// for a value of the wrong type or out of range; `where` begins the message.
TrainConfig config_from_json(const core::Json& json, const std::string& where);

}  // namespace weft::train
