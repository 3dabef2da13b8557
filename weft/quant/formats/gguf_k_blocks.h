#pragma once

#include <array>
#include <cstdint>

#include "weft/quant/formats/gguf_blocks.h"

namespace weft::quant {

/// A K-quant block of 256 elements taken apart. A group's scale is scale * scales[group], its
/// offset offset * offsets[group], in float32 both exact; the symmetric kinds have no offsets.
struct TwoLevelBlock {
  std::array<uint8_t, 256> codes;
  /// As many as 256 elements have groups: 8 or 16.
  std::array<int8_t, 16> scales;
  std::array<int8_t, 16> offsets;
  float scale;
  float offset;
};

/// Takes one block of a two-level type apart. Throws InternalError for other types.
void decode_two_level_block(core::Dtype dtype, const uint8_t* block, TwoLevelBlock& to);

}  // namespace weft::quant
