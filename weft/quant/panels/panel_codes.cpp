#include "weft/quant/panels/panel_codes.h"

#include <algorithm>
#include <cstring>

namespace weft::quant {
namespace {

using kernels::kBlockColumns;
using kernels::kPanelRows;
using kernels::PanelNumbers;

// The columns that share bytes: with 4 bits with the other half, with 6 bits with each other.
constexpr int64_t kHalfBlock = kBlockColumns / 2;
constexpr int64_t kStepBytes = 4 * kPanelRows;

// Codes of any bits: one stream, lowest bit first.
RowCodes read_stream(const uint8_t* packed, int64_t bits) {
  RowCodes codes;
  for (int64_t i = 0; i < kBlockColumns; ++i) {
    const int64_t first = i * bits, at = first / 8, shift = first % 8;
    int value = packed[at] >> shift;
    if (shift + bits > 8) value |= packed[at + 1] << (8 - shift);
    codes[static_cast<size_t>(i)] = static_cast<uint8_t>(value & ((1 << bits) - 1));
  }
  return codes;
}

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
  if (bits == 8) {
    std::copy_n(packed, kBlockColumns, codes.begin());
    return codes;
  }
  if (bits != 4) return read_stream(packed, bits);
  for (size_t i = 0; i < kHalfBlock; ++i) {
    codes[2 * i] = packed[i] & 15;
    codes[2 * i + 1] = packed[i] >> 4;
  }
  return codes;
}

RowCodes read_panel_codes(const uint8_t* steps, PanelNumbers numbers) {
  if (numbers == PanelNumbers::kCodes6) return read_sixes(steps);
  const bool is_4 = numbers == PanelNumbers::kCodes4;
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
  for (int64_t i = 0; i < kHalfBlock; ++i) {
    const auto at = static_cast<size_t>(i);
    steps[i / 4 * 4 * kPanelRows + i % 4] =
        static_cast<uint8_t>(codes[at] | codes[at + kHalfBlock] << 4);
  }
}

}  // namespace weft::quant
