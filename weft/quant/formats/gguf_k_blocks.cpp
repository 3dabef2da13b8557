#include "weft/quant/formats/gguf_k_blocks.h"

#include <c10/util/Half.h>

#include <array>

#include "weft/core/error.h"

namespace weft::quant {
namespace {

constexpr int kElements = 256;

float half_at(const uint8_t* p) {
  const auto bits = static_cast<uint16_t>(p[0] | p[1] << 8);
  return c10::Half(bits, c10::Half::from_bits());
}

/// The two low bits of element e: each half block of 128 elements has 32 bytes, each byte four
/// elements that are 32 apart.
uint8_t two_bits(const uint8_t* planes, int e) {
  return (planes[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2)) & 3;
}

/// 16 bytes of a scale and a minimum (4 bits each), 64 bytes of codes, f16 d, f16 dmin.
void decode_q2(const uint8_t* block, const TwoLevelBlock& to) {
  const float d = half_at(block + 80);
  const float dmin = half_at(block + 82);
  for (int group = 0; group < 16; ++group) {
    to.scales[group] = d * static_cast<float>(block[group] & 15);
    to.offsets[group] = -(dmin * static_cast<float>(block[group] >> 4));
  }
  for (int e = 0; e < kElements; ++e) to.codes[e] = two_bits(block + 16, e);
}

/// 32 bytes of third bits, 64 of two low bits, 12 of sixteen 6-bit scales, f16 d.
void decode_q3(const uint8_t* block, const TwoLevelBlock& to) {
  const uint8_t* packed = block + 96;
  const float d = half_at(block + 108);
  for (int group = 0; group < 16; ++group) {
    const int low = group < 8 ? packed[group] & 15 : packed[group - 8] >> 4;
    const int high = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
    to.scales[group] = d * static_cast<float>((low | high << 4) - 32);
  }
  for (int e = 0; e < kElements; ++e) {
    const int third = (block[e % 32] >> (e / 32)) & 1;
    to.codes[e] = static_cast<uint8_t>(two_bits(block + 32, e) | third << 2);
  }
}

/// f16 d, f16 dmin, then twelve bytes with eight 6-bit scales and eight 6-bit minima: the first
/// four of each in the low bits of a byte, the others in nibbles with two bits from the first.
void decode_scales_and_minima(const uint8_t* block, const TwoLevelBlock& to) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const uint8_t* packed = block + 4;
  for (int group = 0; group < 8; ++group) {
    int scale = packed[group] & 63;
    int minimum = packed[group + 4] & 63;
    if (group >= 4) {
      scale = (packed[group + 4] & 15) | (packed[group - 4] >> 6) << 4;
      minimum = packed[group + 4] >> 4 | (packed[group] >> 6) << 4;
    }
    to.scales[group] = d * static_cast<float>(scale);
    to.offsets[group] = -(dmin * static_cast<float>(minimum));
  }
}

/// Element e of 64-element chunks of 32 bytes: 32 low nibbles, then 32 high ones.
uint8_t chunk_nibble(const uint8_t* chunks, int e) {
  const uint8_t both = chunks[e / 64 * 32 + e % 32];
  return e % 64 < 32 ? both & 15 : both >> 4;
}

/// Scales and minima (16 bytes), 128 bytes of nibbles.
void decode_q4(const uint8_t* block, const TwoLevelBlock& to) {
  decode_scales_and_minima(block, to);
  for (int e = 0; e < kElements; ++e) to.codes[e] = chunk_nibble(block + 16, e);
}

/// Scales and minima (16 bytes), 32 bytes of fifth bits, 128 of nibbles.
void decode_q5(const uint8_t* block, const TwoLevelBlock& to) {
  decode_scales_and_minima(block, to);
  for (int e = 0; e < kElements; ++e) {
    const int fifth = (block[16 + e % 32] >> (e / 32)) & 1;
    to.codes[e] = static_cast<uint8_t>(chunk_nibble(block + 48, e) | fifth << 4);
  }
}

/// 128 bytes of nibbles, 64 of two high bits, 16 int8 scales, f16 d.
void decode_q6(const uint8_t* block, const TwoLevelBlock& to) {
  const float d = half_at(block + 208);
  for (int group = 0; group < 16; ++group) {
    to.scales[group] = d * static_cast<float>(static_cast<int8_t>(block[192 + group]));
  }
  for (int e = 0; e < kElements; ++e) {
    const uint8_t both = block[e / 128 * 64 + e % 64];
    const int low = e % 128 < 64 ? both & 15 : both >> 4;
    to.codes[e] = static_cast<uint8_t>(low | two_bits(block + 128, e) << 4);
  }
}

}  // namespace

void decode_two_level_block(core::Dtype dtype, const uint8_t* block, const TwoLevelBlock& to) {
  switch (dtype) {
    case core::Dtype::kQ2K:
      return decode_q2(block, to);
    case core::Dtype::kQ3K:
      return decode_q3(block, to);
    case core::Dtype::kQ4K:
      return decode_q4(block, to);
    case core::Dtype::kQ5K:
      return decode_q5(block, to);
    case core::Dtype::kQ6K:
      return decode_q6(block, to);
    default:
      core::fail<core::InternalError>(
          "quant.decode_two_level_block: type, expected a K-quant, got ", core::info(dtype).name,
          "; report this");
  }
}

}  // namespace weft::quant
