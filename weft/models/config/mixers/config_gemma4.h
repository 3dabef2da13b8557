#pragma once

#include <nlohmann/json_fwd.hpp>

#include "weft/models/config/config.h"
#include "weft/models/config/families.h"
#include "weft/models/config/json_keys.h"

namespace weft::models {

/// Whether layers with and without a window differ as Gemma 4's do. Source: transformers'
/// configuration_gemma4.py.
inline bool has_gemma4_layers(const FamilyInfo& family) { return family.full_head_dim > 0; }

/// What such a family has that no key says: scores as they are, norms of values, a factor of each
/// layer, and the rope that layers without a window have where the file says nothing.
void take_gemma4_traits(const FamilyInfo& family, ModelConfig& config);

/// What config.json says of its layers, once windows and rope are known. Nothing for other
/// families. Throws FormatError, and ConfigError for what is not supported.
void read_gemma4(const JsonKeys& keys, const FamilyInfo& family, ModelConfig& config);

/// What config.json says of a configuration of such a family, in place of what others have for
/// rope.
void add_gemma4(const ModelConfig& config, nlohmann::json& object);

}  // namespace weft::models
