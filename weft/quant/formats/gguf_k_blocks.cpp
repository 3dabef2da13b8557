#include "weft/quant/formats/gguf_k_blocks.h"

#include <cstring>

namespace weft::quant {
namespace {

/// One bit of each element: bit k of 32 bytes is that of elements 32 k and further.
void add_one_bit(const uint8_t* planes, int shift, uint8_t* codes) {
  for (int plane = 0; plane < 8; ++plane, codes += 32) {
    for (int i = 0; i < 32; ++i) {
      codes[i] |= static_cast<uint8_t>((planes[i] >> plane & 1) << shift);
    }
  }
}

/// f16 d, f16 dmin, then twelve bytes with eight 6-bit scales and eight 6-bit minima: the first
/// four of each in the low bits of a byte, the others in nibbles with two bits from the first.
void decode_scales_and_minima(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block);
  to.offset = -half_at(block + 2);
  const uint8_t* packed = block + 4;
  for (int group = 0; group < 8; ++group) {
    int scale = packed[group] & 63;
    int minimum = packed[group + 4] & 63;
    if (group >= 4) {
      scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4;
      minimum = packed[group + 4] >> 4 | (packed[group] >> 6) << 4;
    }
    to.scales[group] = static_cast<int8_t>(scale);
    to.offsets[group] = static_cast<int8_t>(minimum);
  }
}

}  // namespace

// 16 bytes of a scale and a minimum (4 bits each), 64 bytes of codes, f16 d, f16 dmin.
void decode_q2_k(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block + 80);
  to.offset = -half_at(block + 82);
  for (int group = 0; group < 16; ++group) {
    to.scales[group] = static_cast<int8_t>(block[group] & 15);
    to.offsets[group] = static_cast<int8_t>(block[group] >> 4);
  }
  to.codes.fill(0);
  add_two_bits(block + 16, 0, to.codes.data());
}

// 32 bytes of third bits, 64 of two low bits, 12 of sixteen 6-bit scales, f16 d.
void decode_q3_k(const uint8_t* block, TwoLevelBlock& to) {
  const uint8_t* packed = block + 96;
  to.scale = half_at(block + 108);
  for (int group = 0; group < 16; ++group) {
    const int low = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
    const int high = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
    to.scales[group] = static_cast<int8_t>((low | high << 4) - 32);
  }
  to.codes.fill(0);
  add_two_bits(block + 32, 0, to.codes.data());
  add_one_bit(block, 2, to.codes.data());
}

// Scales and minima (16 bytes), 128 bytes of nibbles.
void decode_q4_k(const uint8_t* block, TwoLevelBlock& to) {
  decode_scales_and_minima(block, to);
  set_nibbles(block + 16, 32, to.codes.data());
}

// Scales and minima (16 bytes), 32 bytes of fifth bits, 128 of nibbles.
void decode_q5_k(const uint8_t* block, TwoLevelBlock& to) {
  decode_scales_and_minima(block, to);
  set_nibbles(block + 48, 32, to.codes.data());
  add_one_bit(block + 16, 4, to.codes.data());
}

// 128 bytes of nibbles, 64 of two high bits, 16 int8 scales, f16 d.
void decode_q6_k(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block + 208);
  std::memcpy(to.scales.data(), block + 192, to.scales.size());
  set_nibbles(block, 64, to.codes.data());
  add_two_bits(block + 128, 4, to.codes.data());
}

}  // namespace weft::quant
