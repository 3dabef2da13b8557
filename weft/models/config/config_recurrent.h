#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "weft/models/config/config.h"
#include "weft/models/config/families.h"
#include "weft/models/config/json_keys.h"
#include "weft/models/config/sources_gguf.h"

namespace weft::models {

inline constexpr const char* kTapsGgufKey = "shortconv.l_cache";

/// Whether a family has LFM2's names of weights and keys.
bool has_lfm2_names(const FamilyInfo& family);
/// Whether its layers without attention are gated delta nets.
bool has_delta_nets(const FamilyInfo& family);

/// Recurrent layers, and what config.json of their families says otherwise. Nothing for families
/// without. Throws FormatError and ConfigError that name the key.
void read_recurrent(const JsonKeys& keys, const FamilyInfo& family, ModelConfig& config);
/// The same from a GGUF. LFM2's has a list of kv heads by layer with 0 for recurrent ones.
void read_recurrent(const GgufKeys& keys, const std::string& architecture, ModelConfig& config);
/// What config.json says of them.
void add_recurrent(const ModelConfig& config, const FamilyInfo& family, nlohmann::json& object);

}  // namespace weft::models
