#pragma once

#include <string>
#include <vector>

#include "weft/models/config/config.h"
#include "weft/models/convert/keys/gguf_key_list.h"

namespace weft::models {

/// GGUF's architecture for a configuration: Mistral and Mixtral are of "llama" there. Throws
/// ConfigError, beginning with `where`, for what GGUF's readers have no key for: dynamic rope
/// scaling, yarn without whole dims, windows or experts in some layers only, routing weights that
/// the architecture treats otherwise, tensors with which its readers don't open a file.
std::string gguf_architecture(const ModelConfig& config, const std::string& where);

/// What the file says and llama.cpp does not read for the architecture, a line each, so that it
/// computes otherwise than weft.
std::vector<std::string> ignored_in_gguf(const ModelConfig& config);

/// Adds general.architecture and all <architecture>.* keys. Llama 3's rope scaling is no key but a
/// tensor (llama3_divisors). Source: the GGUF specification of ggml (docs/gguf.md).
void add_model_keys(const ModelConfig& config, GgufKeyList& keys);

}  // namespace weft::models
