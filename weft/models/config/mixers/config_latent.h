#pragma once

#include <string>

#include "weft/models/config/config.h"
#include "weft/models/config/families.h"
#include "weft/models/config/json_keys.h"
#include "weft/models/config/sources_gguf.h"

namespace weft::models {

/// The sizes of latent attention from config.json, for a family that has it: ModelConfig::latent,
/// head_dim, rope_dims and which features rope turns together. The number of heads is known. Throws
/// FormatError, ConfigError for biases, which it does not have here.
void read_latent(const JsonKeys& keys, const FamilyLatent& family, ModelConfig& config);

/// The same from a GGUF's keys, but for what read_rope reads. Kv heads are as many as heads,
/// whatever the file says: newer files count those of the latent. Throws FormatError.
void read_latent(const GgufKeys& keys, const std::string& architecture, ModelConfig& config);

}  // namespace weft::models
