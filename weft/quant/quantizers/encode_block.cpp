#include <c10/util/Half.h>

#include <cstring>

#include "weft/core/error.h"
#include "weft/quant/quantizers/block_form.h"

namespace weft::quant {
namespace {

using core::Dtype;

uint8_t byte(int number) { return static_cast<uint8_t>(number & 255); }

void put_half(float number, uint8_t* to) {
  const c10::Half half(number);
  to[0] = byte(half.x);
  to[1] = byte(half.x >> 8);
}

// The low nibble of byte j of a chunk is element j, the high one element j + bytes.
void put_nibbles(const FittedBlock& block, int elements, int bytes, uint8_t* to) {
  for (int first = 0; first < elements; first += 2 * bytes, to += bytes) {
    for (int j = 0; j < bytes; ++j) {
      const int low = block.codes[static_cast<size_t>(first + j)] & 15;
      const int high = block.codes[static_cast<size_t>(first + bytes + j)] & 15;
      to[j] = byte(low | high << 4);
    }
  }
}

// Two bits of each element, `shift` bits up, in the order of add_two_bits.
void put_two_bits(const FittedBlock& block, int shift, uint8_t* to) {
  for (int half = 0; half < 2; ++half, to += 32) {
    for (int j = 0; j < 32; ++j) {
      int packed = 0;
      for (int k = 0; k < 4; ++k) {
        const int code = block.codes[static_cast<size_t>(128 * half + 32 * k + j)];
        packed |= (code >> shift & 3) << (2 * k);
      }
      to[j] = byte(packed);
    }
  }
}

// Bit k of 32 bytes is that of elements 32 k and further.
void put_one_bit(const FittedBlock& block, int shift, uint8_t* to) {
  for (int j = 0; j < 32; ++j) {
    int packed = 0;
    for (int k = 0; k < 8; ++k) {
      packed |= (block.codes[static_cast<size_t>(32 * k + j)] >> shift & 1) << k;
    }
    to[j] = byte(packed);
  }
}

void encode_one_level(const BlockForm& form, const FittedBlock& block, uint8_t* to) {
  put_half(block.scale, to);
  to += 2;
  if (form.has_offsets) {
    put_half(block.offset, to);
    to += 2;
  }
  if (form.codes.most == 255) {
    for (size_t i = 0; i < 32; ++i) to[i] = byte(block.codes[i] ^ 0x80);
    return;
  }
  if (form.codes.most == 31) {
    uint32_t fifths = 0;
    for (size_t i = 0; i < 32; ++i) fifths |= (block.codes[i] >> 4 & 1U) << i;
    for (int i = 0; i < 4; ++i) to[i] = static_cast<uint8_t>(fifths >> (8 * i));
    to += 4;
  }
  put_nibbles(block, 32, 16, to);
}

// Of Q4_K and Q5_K: d, dmin, and the eight scales and offsets in twelve bytes.
void put_scales_and_minima(const FittedBlock& block, uint8_t* to) {
  put_half(block.scale, to);
  put_half(-block.offset, to + 2);
  uint8_t* packed = to + 4;
  for (size_t g = 0; g < 4; ++g) {
    packed[g] = byte(block.scales[g] | (block.scales[g + 4] >> 4) << 6);
    packed[g + 4] = byte(block.offsets[g] | (block.offsets[g + 4] >> 4) << 6);
    packed[g + 8] = byte((block.scales[g + 4] & 15) | (block.offsets[g + 4] & 15) << 4);
  }
}

void encode_q2_k(const FittedBlock& block, uint8_t* to) {
  for (size_t g = 0; g < 16; ++g) to[g] = byte(block.scales[g] | block.offsets[g] << 4);
  put_two_bits(block, 0, to + 16);
  put_half(block.scale, to + 80);
  put_half(-block.offset, to + 82);
}

void encode_q3_k(const FittedBlock& block, uint8_t* to) {
  put_one_bit(block, 2, to);
  put_two_bits(block, 0, to + 32);
  uint8_t* packed = to + 96;
  std::memset(packed, 0, 12);
  for (size_t g = 0; g < 16; ++g) {
    const int scale = block.scales[g] + 32;
    packed[g % 8] |= byte((scale & 15) << (g < 8 ? 0 : 4));
    packed[8 + g % 4] |= byte((scale >> 4) << (g / 4 * 2));
  }
  put_half(block.scale, to + 108);
}

void encode_q4_k(const FittedBlock& block, uint8_t* to) {
  put_scales_and_minima(block, to);
  put_nibbles(block, kTwoLevelElements, 32, to + 16);
}

void encode_q5_k(const FittedBlock& block, uint8_t* to) {
  put_scales_and_minima(block, to);
  put_one_bit(block, 4, to + 16);
  put_nibbles(block, kTwoLevelElements, 32, to + 48);
}

void encode_q6_k(const FittedBlock& block, uint8_t* to) {
  put_nibbles(block, kTwoLevelElements, 64, to);
  put_two_bits(block, 4, to + 128);
  for (size_t g = 0; g < 16; ++g) to[192 + g] = byte(block.scales[g]);
  put_half(block.scale, to + 208);
}

void encode_iq4_xs(const FittedBlock& block, uint8_t* to) {
  put_half(block.scale, to);
  std::memset(to + 2, 0, 6);
  for (size_t g = 0; g < 8; ++g) {
    const int scale = block.scales[g] + 32;
    to[4 + g / 2] |= byte((scale & 15) << (g % 2 * 4));
    to[2 + g / 4] |= byte((scale >> 4) << (2 * (g % 4)));
  }
  put_nibbles(block, kTwoLevelElements, 16, to + 8);
}

}  // namespace

void encode_block(const BlockForm& form, const FittedBlock& block, uint8_t* to) {
  switch (form.dtype) {
    case Dtype::kQ2K:
      return encode_q2_k(block, to);
    case Dtype::kQ3K:
      return encode_q3_k(block, to);
    case Dtype::kQ4K:
      return encode_q4_k(block, to);
    case Dtype::kQ5K:
      return encode_q5_k(block, to);
    case Dtype::kQ6K:
      return encode_q6_k(block, to);
    case Dtype::kIQ4XS:
      return encode_iq4_xs(block, to);
    default:
      core::check<core::InternalError>(!form.has_two_levels(),
                                       "quant.encode_block: ", core::info(form.dtype).name,
                                       " has no writer");
      return encode_one_level(form, block, to);
  }
}

}  // namespace weft::quant
