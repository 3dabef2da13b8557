#pragma once

#include <c10/util/Half.h>

#include <array>
#include <cstdint>

#include "weft/core/dtype.h"

namespace weft::quant {

/// Elements of a block of two levels.
inline constexpr int kTwoLevelElements = 256;

/// A block of 256 elements taken apart: GGUF's K-quants, IQ types but IQ4_NL, and TQ types. A
/// group's scale is scale * scales[group], its offset offset * offsets[group], in float32 both
/// exact; the symmetric kinds have no offsets.
struct TwoLevelBlock {
  /// Of types whose GgufBlockInfo has a table: indices into it.
  std::array<uint8_t, kTwoLevelElements> codes;
  /// As many as 256 elements have groups: 8 or 16.
  std::array<int8_t, 16> scales;
  std::array<int8_t, 16> offsets;
  float scale;
  float offset;
};

/// Takes one block of a two-level type apart. Throws InternalError for other types.
void decode_two_level_block(core::Dtype dtype, const uint8_t* block, TwoLevelBlock& to);

/// A float16 of a file, at any address.
inline float half_at(const uint8_t* p) {
  const auto bits = static_cast<uint16_t>(p[0] | p[1] << 8);
  return c10::Half(bits, c10::Half::from_bits());
}

/// Adds two bits of each element, `shift` bits up: a half block of 128 elements has 32 bytes, each
/// of which has the bits of four elements that are 32 apart.
void add_two_bits(const uint8_t* planes, int shift, uint8_t* codes);
/// Sets all codes out of chunks of `bytes` bytes: as many elements of low nibbles, then those of
/// the high ones.
void set_nibbles(const uint8_t* chunks, int bytes, uint8_t* codes);

}  // namespace weft::quant
