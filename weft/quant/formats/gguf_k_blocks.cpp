#include "weft/quant/formats/gguf_k_blocks.h"

#include <c10/util/Half.h>

#include <cstring>

#include "weft/core/error.h"

namespace weft::quant {
namespace {

constexpr int kElements = 256;

float half_at(const uint8_t* p) {
  const auto bits = static_cast<uint16_t>(p[0] | p[1] << 8);
  return c10::Half(bits, c10::Half::from_bits());
}

/// Two bits of each element: a half block of 128 elements has 32 bytes, each of which has the bits
/// of four elements that are 32 apart.
void add_two_bits(const uint8_t* planes, int shift, uint8_t* codes) {
  for (int half = 0; half < 2; ++half, planes += 32) {
    for (int plane = 0; plane < 4; ++plane, codes += 32) {
      for (int i = 0; i < 32; ++i) {
        codes[i] |= static_cast<uint8_t>((planes[i] >> (2 * plane) & 3) << shift);
      }
    }
  }
}

/// One bit of each element: bit k of 32 bytes is that of elements 32 k and further.
void add_one_bit(const uint8_t* planes, int shift, uint8_t* codes) {
  for (int plane = 0; plane < 8; ++plane, codes += 32) {
    for (int i = 0; i < 32; ++i) {
      codes[i] |= static_cast<uint8_t>((planes[i] >> plane & 1) << shift);
    }
  }
}

/// Chunks of `bytes` bytes: as many elements of low nibbles, then those of the high ones.
void set_nibbles(const uint8_t* chunks, int bytes, uint8_t* codes) {
  for (int chunk = 0; chunk < kElements / 2 / bytes; ++chunk, chunks += bytes, codes += 2 * bytes) {
    for (int i = 0; i < bytes; ++i) {
      codes[i] = chunks[i] & 15;
      codes[bytes + i] = chunks[i] >> 4;
    }
  }
}

/// 16 bytes of a scale and a minimum (4 bits each), 64 bytes of codes, f16 d, f16 dmin.
void decode_q2(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block + 80);
  to.offset = -half_at(block + 82);
  for (int group = 0; group < 16; ++group) {
    to.scales[group] = static_cast<int8_t>(block[group] & 15);
    to.offsets[group] = static_cast<int8_t>(block[group] >> 4);
  }
  to.codes.fill(0);
  add_two_bits(block + 16, 0, to.codes.data());
}

/// 32 bytes of third bits, 64 of two low bits, 12 of sixteen 6-bit scales, f16 d.
void decode_q3(const uint8_t* block, TwoLevelBlock& to) {
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

/// Scales and minima (16 bytes), 128 bytes of nibbles.
void decode_q4(const uint8_t* block, TwoLevelBlock& to) {
  decode_scales_and_minima(block, to);
  set_nibbles(block + 16, 32, to.codes.data());
}

/// Scales and minima (16 bytes), 32 bytes of fifth bits, 128 of nibbles.
void decode_q5(const uint8_t* block, TwoLevelBlock& to) {
  decode_scales_and_minima(block, to);
  set_nibbles(block + 48, 32, to.codes.data());
  add_one_bit(block + 16, 4, to.codes.data());
}

/// 128 bytes of nibbles, 64 of two high bits, 16 int8 scales, f16 d.
void decode_q6(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block + 208);
  std::memcpy(to.scales.data(), block + 192, to.scales.size());
  set_nibbles(block, 64, to.codes.data());
  add_two_bits(block + 128, 4, to.codes.data());
}

}  // namespace

void decode_two_level_block(core::Dtype dtype, const uint8_t* block, TwoLevelBlock& to) {
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
