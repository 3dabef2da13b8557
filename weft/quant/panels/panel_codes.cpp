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

// Two codes in a byte.
bool are_nibbles(PanelNumbers numbers) {
  return numbers == PanelNumbers::kCodes4 || numbers == PanelNumbers::kTable4;
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
  const bool is_4 = are_nibbles(numbers);
  RowCodes codes;
  for (int64_t i = 0; i < (is_4 ? kHalfBlock : kBlockColumns); ++i) {
    const uint8_t byte = steps[i / 4 * 4 * kPanelRows + i % 4];
    codes[static_cast<size_t>(i)] = is_4 ? byte & 15 : byte;
    if (is_4) codes[static_cast<size_t>(i + kHalfBlock)] = byte >> 4;
  }
  return codes;
}

void write_panel_codes(const RowCodes& codes, PanelNumbers numbers, uint8_t* steps) {
  if (numbers == PanelNumbers::kCodes6) return write_sixes(codes, steps);
  if (numbers == PanelNumbers::kCodes8) {
    for (int64_t i = 0; i < kBlockColumns; i += 4) {
      std::memcpy(steps + i * kPanelRows, codes.data() + i, 4);
    }
    return;
  }
  for (int64_t i = 0; i < kHalfBlock; i += 4) {
    uint32_t low = 0, high = 0;
    std::memcpy(&low, codes.data() + i, 4);
    std::memcpy(&high, codes.data() + i + kHalfBlock, 4);
    const uint32_t both = low | high << 4;
    std::memcpy(steps + i * kPanelRows, &both, 4);
  }
}

}  // namespace weft::quant
