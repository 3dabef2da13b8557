#include "weft/quant/formats/gguf_i_blocks.h"

#include <bit>

#include "weft/quant/formats/gguf_grids.h"

namespace weft::quant {
namespace {

// Runs of elements that one entry of a grid stands for, in a block.
constexpr int kEights = kTwoLevelElements / 8;
constexpr int kFours = kTwoLevelElements / 4;

unsigned halves_at(const uint8_t* p) { return p[0] | static_cast<unsigned>(p[1]) << 8; }

uint32_t word_at(const uint8_t* p) { return halves_at(p) | halves_at(p + 2) << 16; }

// Scales of four bits stand for odd numbers, of halves, quarters or eighths of d.
int8_t odd(unsigned scale) { return static_cast<int8_t>(2 * scale + 1); }

// Sixteen or eight of them, two in a byte, the low nibble first.
void set_odd_scales(const uint8_t* packed, int groups, TwoLevelBlock& to) {
  for (int group = 0; group < groups; ++group) {
    to.scales[static_cast<size_t>(group)] = odd(packed[group / 2] >> (group % 2 * 4) & 15);
  }
}

// Of eight signs the last is stored nowhere: the number of minus signs is even.
unsigned eight_signs(unsigned seven) {
  return seven | static_cast<unsigned>(std::popcount(seven) % 2) << 7;
}

// Indices of kCount elements: the grid's levels, kBits each, and above them a bit of `signs`. Of
// levels of four bits the highest is none.
template <int kCount>
void set_indices(unsigned levels, unsigned signs, uint8_t* codes) {
  constexpr int kBits = 16 / kCount, kSign = kBits == 2 ? 2 : 3;
  for (int i = 0; i < kCount; ++i) {
    const unsigned level = levels >> (kBits * i) & ((1U << kBits) - 1);
    codes[i] = static_cast<uint8_t>(level | (signs >> i & 1) << kSign);
  }
}

// Of IQ1 an eighth of the same sign is added to all elements of a run.
void set_shifted(unsigned levels, bool is_minus, uint8_t* codes) {
  set_indices<8>(levels, is_minus ? 255 : 0, codes);
}

// One step of d for every group, which codes of 2 bits count down from 2: code 3 is -1.
void set_ternary_scale(const uint8_t* half, TwoLevelBlock& to) {
  to.scale = -half_at(half);
  to.scales.fill(1);
}

// `bytes` bytes of `digits` base-3 digits each, the first of which are of `bytes` neighbours. A
// byte is a fraction of 256, whose digits come out at the top when it is multiplied by 3.
void set_digits(const uint8_t* packed, int bytes, int digits, uint8_t* codes) {
  unsigned power = 1;
  for (int digit = 0; digit < digits; ++digit, power *= 3, codes += bytes) {
    for (int i = 0; i < bytes; ++i) {
      codes[i] = static_cast<uint8_t>(3 - ((packed[i] * power & 255) * 3 >> 8));
    }
  }
}

}  // namespace

// f16 d; for each group of 32 four bytes of entries and a word: four times seven signs, the scale.
void decode_iq2_xxs(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block) / 8;
  for (int i = 0; i < kEights; ++i) {
    const uint8_t* group = block + 2 + i / 4 * 8;
    const uint32_t rest = word_at(group + 4);
    to.scales[static_cast<size_t>(i / 4)] = odd(rest >> 28);
    set_indices<8>(kIq2XxsGrid[group[i % 4]], eight_signs(rest >> (7 * (i % 4)) & 127),
                   to.codes.data() + 8 * i);
  }
}

// f16 d, 32 words of two bytes: 9 bits of an entry, seven signs; 8 bytes of scales.
void decode_iq2_xs(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block) / 8;
  set_odd_scales(block + 66, 16, to);
  for (int i = 0; i < kEights; ++i) {
    const unsigned both = halves_at(block + 2 + 2 * i);
    set_indices<8>(kIq2XsGrid[both & 511], eight_signs(both >> 9), to.codes.data() + 8 * i);
  }
}

// f16 d, 32 bytes of entries, 32 of signs, 8 of entries' two high bits, 8 of scales.
void decode_iq2_s(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block) / 8;
  set_odd_scales(block + 74, 16, to);
  for (int i = 0; i < kEights; ++i) {
    const unsigned high = block[66 + i / 4] >> (i % 4 * 2) & 3;
    set_indices<8>(kIq2SGrid[block[2 + i] | high << 8], block[34 + i], to.codes.data() + 8 * i);
  }
}

// f16 d, 64 bytes of entries; for each group of 32 a word: four times seven signs, the scale.
void decode_iq3_xxs(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block) / 4;
  for (int i = 0; i < kFours; ++i) {
    const uint32_t rest = word_at(block + 66 + i / 8 * 4);
    to.scales[static_cast<size_t>(i / 8)] = odd(rest >> 28);
    const unsigned signs = eight_signs(rest >> (i / 2 % 4 * 7) & 127);
    set_indices<4>(kIq3XxsGrid[block[2 + i]], signs >> (i % 2 * 4), to.codes.data() + 4 * i);
  }
}

// f16 d, 64 bytes of entries, 8 of entries' ninth bits, 32 of signs, 4 of scales.
void decode_iq3_s(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block);
  set_odd_scales(block + 106, 8, to);
  for (int i = 0; i < kFours; ++i) {
    const unsigned high = block[66 + i / 8] >> (i % 8) & 1;
    set_indices<4>(kIq3SGrid[block[2 + i] | high << 8], block[74 + i / 2] >> (i % 2 * 4),
                   to.codes.data() + 4 * i);
  }
}

// f16 d, 32 bytes of entries; for each group of 32 two bytes: entries' three high bits four times,
// three bits of scale, the sign.
void decode_iq1_s(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block) / 8;
  for (int i = 0; i < kEights; ++i) {
    const unsigned group = halves_at(block + 34 + i / 4 * 2);
    to.scales[static_cast<size_t>(i / 4)] = odd(group >> 12 & 7);
    const unsigned high = group >> (i % 4 * 3) & 7;
    set_shifted(kIq1Grid[block[2 + i] | high << 8], group >> 15 != 0, to.codes.data() + 8 * i);
  }
}

// 32 bytes of entries, 16 of nibbles: entries' three high bits, the sign; four words of two bytes,
// each with four scales of three bits and above them four bits of d, the lowest first.
void decode_iq1_m(const uint8_t* block, TwoLevelBlock& to) {
  uint8_t half[2] = {};
  for (int i = 0; i < 4; ++i) {
    const unsigned word = halves_at(block + 48 + 2 * i);
    half[i / 2] |= static_cast<uint8_t>(word >> 12 << (i % 2 * 4));
    for (int j = 0; j < 4; ++j) {
      to.scales[static_cast<size_t>(4 * i + j)] = odd(word >> (3 * j) & 7);
    }
  }
  to.scale = half_at(half) / 8;
  for (int i = 0; i < kEights; ++i) {
    const unsigned nibble = block[32 + i / 2] >> (i % 2 * 4) & 15;
    set_shifted(kIq1Grid[block[i] | (nibble & 7) << 8], nibble >> 3 != 0, to.codes.data() + 8 * i);
  }
}

// f16 d, two bytes of eight scales' two high bits, 4 of their low nibbles, 128 of nibbles.
void decode_iq4_xs(const uint8_t* block, TwoLevelBlock& to) {
  to.scale = half_at(block);
  const unsigned high = halves_at(block + 2);
  for (int group = 0; group < 8; ++group) {
    const unsigned low = block[4 + group / 2] >> (group % 2 * 4) & 15;
    const auto scale = static_cast<int>(low | (high >> (2 * group) & 3) << 4);
    to.scales[static_cast<size_t>(group)] = static_cast<int8_t>(scale - 32);
  }
  set_nibbles(block + 8, 16, to.codes.data());
}

// 32 bytes of five digits, 16 of five, 4 of four, f16 d.
void decode_tq1_0(const uint8_t* block, TwoLevelBlock& to) {
  set_ternary_scale(block + 52, to);
  set_digits(block, 32, 5, to.codes.data());
  set_digits(block + 32, 16, 5, to.codes.data() + 160);
  set_digits(block + 48, 4, 4, to.codes.data() + 240);
}

// 64 bytes of 2 bits, f16 d.
void decode_tq2_0(const uint8_t* block, TwoLevelBlock& to) {
  set_ternary_scale(block + 64, to);
  to.codes.fill(0);
  add_two_bits(block, 0, to.codes.data());
  for (uint8_t& code : to.codes) code = static_cast<uint8_t>(3 - code);
}

}  // namespace weft::quant
