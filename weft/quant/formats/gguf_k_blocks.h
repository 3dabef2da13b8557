#pragma once

#include <cstdint>

#include "weft/quant/formats/gguf_blocks.h"

namespace weft::quant {

/// Where one K-quant block of 256 elements goes.
struct TwoLevelBlock {
  /// [256]
  uint8_t* codes;
  /// [256 / group size]
  float* scales;
  /// As scales; null for the symmetric kinds.
  float* offsets;
};

/// Takes one block of a two-level type apart. Throws InternalError for other types.
void decode_two_level_block(core::Dtype dtype, const uint8_t* block, const TwoLevelBlock& to);

}  // namespace weft::quant
