#pragma once

#include <string>
#include <vector>

#include "weft/models/config/config.h"
#include "weft/models/convert/keys/gguf_key_list.h"

namespace weft::models {

/// What a GGUF says of layers with and without a window that differ as Gemma 4's do: their heads,
/// windows, ropes and feed-forward layers, and layer inputs (gemma4_gguf.h reads it).
void add_gemma4_keys(const ModelConfig& config, GgufKeyList& keys);

/// By what rope's frequencies are divided in layers without a window; empty: by nothing.
std::vector<float> gemma4_divisors(const ModelConfig& config);

/// Throws ConfigError, beginning with `where`, for what its readers don't know.
void check_gemma4_in_gguf(const ModelConfig& config, const std::string& where);

}  // namespace weft::models
