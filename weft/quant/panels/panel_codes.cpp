#include "weft/quant/panels/panel_codes.h"

#include <cstring>

#include "weft/quant/code_stream.h"

namespace weft::quant {
namespace {

using kernels::kBlockColumns;
using kernels::kPanelRows;
using kernels::PanelNumbers;

// The columns that share bytes: with 4 bits with the other half, with 6 bits with each other.
constexpr int64_t kHalfBlock = kBlockColumns / 2;
constexpr int64_t kStepBytes = 4 * kPanelRows;

// Of four columns that lie side by side, those of the fourth step have two bits in each of the
// other three.
RowCodes read_sixes(const uint8_t* steps) {
  RowCodes codes;
  for (size_t i = 0; i < kBlockColumns; ++i) {
    const size_t half = i / kHalfBlock, step = i % kHalfBlock / 4;
    const uint8_t* from = steps + half * 3 * kStepBytes + i % 4;
    codes[i] = step < 3 ? from[step * kStepBytes] & 63
                        : static_cast<uint8_t>(from[0] >> 6 | (from[kStepBytes] >> 6) << 2 |
                                               (from[2 * kStepBytes] >> 6) << 4);
  }
  return codes;
}

// How codes of 2 to 5 bits lie: steps of `low_bits` bits in words of four columns' bytes, then a
// word of highest bits.
struct SplitCodes {
  explicit SplitCodes(PanelNumbers numbers) {
    const kernels::PanelForm form{numbers};
    low_bits = form.bits() < 4 ? 2 : 4;
    has_highest = form.bits() % 2 != 0;
  }
  // Which word has a step's lower bits, and from which bit of each byte on.
  size_t word(size_t step) const { return low_bits == 2 ? step / 4 : step % 4; }
  size_t shift(size_t step) const { return low_bits == 2 ? step % 4 * 2 : step / 4 * 4; }
  uint32_t low() const { return low_bits == 2 ? 0x03030303 : 0x0F0F0F0F; }
  size_t num_words() const { return low_bits + (has_highest ? 1 : 0); }

  size_t low_bits;
  bool has_highest;
};

constexpr size_t kSteps = kBlockColumns / 4;
constexpr uint32_t kOnes = 0x01010101;

RowCodes read_split(const SplitCodes& places, const uint8_t* steps) {
  uint32_t words[5] = {};
  for (size_t i = 0; i < places.num_words(); ++i) std::memcpy(words + i, steps + i * kStepBytes, 4);
  RowCodes codes;
  for (size_t step = 0; step < kSteps; ++step) {
    uint32_t four = words[places.word(step)] >> places.shift(step) & places.low();
    if (places.has_highest) four |= (words[places.low_bits] >> step & kOnes) << places.low_bits;
    std::memcpy(codes.data() + 4 * step, &four, 4);
  }
  return codes;
}

void write_split(const RowCodes& codes, const SplitCodes& places, uint8_t* steps) {
  uint32_t words[5] = {};
  for (size_t step = 0; step < kSteps; ++step) {
    uint32_t four = 0;
    std::memcpy(&four, codes.data() + 4 * step, 4);
    words[places.word(step)] |= (four & places.low()) << places.shift(step);
    if (places.has_highest) words[places.low_bits] |= (four >> places.low_bits & kOnes) << step;
  }
  for (size_t i = 0; i < places.num_words(); ++i) std::memcpy(steps + i * kStepBytes, words + i, 4);
}

void write_sixes(const RowCodes& codes, uint8_t* steps) {
  for (size_t half = 0; half < 2; ++half) {
    for (size_t i = 0; i < 12; ++i) {
      const uint8_t* own = codes.data() + half * kHalfBlock;
      const int fourth = (own[12 + i % 4] >> (i / 4 * 2)) & 3;
      steps[(half * 3 + i / 4) * kStepBytes + i % 4] = static_cast<uint8_t>(own[i] | fourth << 6);
    }
  }
}

}  // namespace

RowCodes read_affine_codes(const uint8_t* packed, int64_t bits) {
  RowCodes codes;
  unpack_codes({packed, static_cast<size_t>(kBlockColumns * bits / 8)}, bits, codes);
  return codes;
}

RowCodes read_panel_codes(const uint8_t* steps, PanelNumbers numbers) {
  if (numbers == PanelNumbers::kCodes6) return read_sixes(steps);
  if (numbers != PanelNumbers::kCodes8) return read_split(SplitCodes(numbers), steps);
  RowCodes codes;
  for (size_t i = 0; i < kBlockColumns; ++i) codes[i] = steps[i / 4 * kStepBytes + i % 4];
  return codes;
}

void write_panel_codes(const RowCodes& codes, PanelNumbers numbers, uint8_t* steps) {
  if (numbers == PanelNumbers::kCodes6) return write_sixes(codes, steps);
  if (numbers != PanelNumbers::kCodes8) return write_split(codes, SplitCodes(numbers), steps);
  for (int64_t i = 0; i < kBlockColumns; i += 4) {
    std::memcpy(steps + i * kPanelRows, codes.data() + i, 4);
  }
}

}  // namespace weft::quant
