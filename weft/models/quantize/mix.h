#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/core/dtype.h"
#include "weft/models/config/config.h"

namespace weft::models {

/// A named choice of types for the tensors of a GGUF file, as llama.cpp's users know it: "Q4_K_M".
struct GgufMix {
  std::string_view name;
  /// GGUF's general.file_type.
  int file_type;
  /// Of most matrices.
  core::Dtype base;
};

/// By name, in any case. Throws ConfigError, beginning with `where`, for another.
const GgufMix& find_mix(const std::string& name, const std::string& where);
/// All names, for help.
std::string mix_names();

/// A type of matrices by ggml's name, in any case: "q4_k", "f16". Throws ConfigError, beginning
/// with `where`, for one that weft does not write.
core::Dtype block_type_named(const std::string& name, const std::string& where);

/// What a mix's choice for one tensor depends on.
struct MixPlace {
  std::string_view tensor;
  int64_t layer = 0;
  /// Of the tensors that make attention's values, which one, and how many there are: fewer than
  /// layers in a model whose other layers mix tokens in another way.
  int64_t values_index = 0, num_values = 0;
  bool has_importance = false;
};

/// True for the tensors that MixPlace::values_index counts.
bool makes_values(std::string_view tensor);

/// The type that a mix gives a tensor: more bits for what llama.cpp found to need them, which are
/// the head, the values and outputs of attention, and ffn_down of some layers. Source: the types in
/// files that llama.cpp writes (llama-quant.cpp).
core::Dtype mixed_type(const GgufMix& mix, const ModelConfig& config, const MixPlace& place);

/// `wanted`, or where rows of `columns` are no whole blocks of it, what llama.cpp takes then.
core::Dtype fitting_type(core::Dtype wanted, int64_t columns);

}  // namespace weft::models
