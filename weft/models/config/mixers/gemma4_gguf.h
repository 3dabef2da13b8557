#pragma once

#include <string>

#include "weft/io/tensor_file.h"
#include "weft/models/config/config.h"
#include "weft/models/config/sources_gguf.h"

namespace weft::models {

// A GGUF's keys of layers that differ, as llama.cpp's conversion/gemma.py writes them: a number for
// all layers, or a list with one for each.
inline constexpr const char* kReusingGgufKey = "attention.shared_kv_layers";
inline constexpr const char* kWindowHeadDimGgufKey = "attention.key_length_swa";
inline constexpr const char* kWindowValueDimGgufKey = "attention.value_length_swa";
inline constexpr const char* kWindowRopeDimsGgufKey = "rope.dimension_count_swa";
inline constexpr const char* kInputWidthGgufKey = "embedding_length_per_layer_input";
/// What divides the frequencies of pairs that rope leaves where they are.
inline constexpr float kUnturnedDivisor = 1e30F;

/// What a GGUF says of layers with and without a window, once its family's traits are taken: their
/// heads, windows, ropes and feed-forward layers, layer inputs and experts. Reads the few numbers
/// by which rope is divided from the file. Throws FormatError, and ConfigError for what is not
/// supported.
void read_gemma4(const io::TensorFile& file, const std::string& architecture, ModelConfig& config);

}  // namespace weft::models
