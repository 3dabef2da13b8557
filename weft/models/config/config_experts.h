#pragma once

#include "weft/models/config/config.h"
#include "weft/models/config/families.h"
#include "weft/models/config/json_keys.h"

namespace weft::models {

/// ModelConfig::experts of a family that has some, from config.json; the number of layers and the
/// width of feed-forward layers are known. Throws FormatError and ConfigError that name the key.
void read_experts(const JsonKeys& keys, const FamilyExperts& family, ModelConfig& config);

}  // namespace weft::models
