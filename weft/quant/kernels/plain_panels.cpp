#include <c10/util/Half.h>

#include <cmath>
#include <cstring>

#include "weft/quant/kernels/panel_kernel.h"

namespace weft::quant::kernels {
namespace {

bool runs_here() { return true; }

void round(const float* x, int64_t num_blocks, const RoundedToken& to) {
  const float limit = to.lower_codes == nullptr ? kMostOf8 : kMostOf16;
  for (int64_t block = 0; block < num_blocks; ++block, x += kBlockColumns) {
    const int64_t at = block * to.stride, first = at * kBlockColumns;
    float most = 0;
    for (int64_t i = 0; i < kBlockColumns; ++i) most = std::fmax(most, std::fabs(x[i]));
    const float inverse = most > kLeast ? limit / most : 0;
    int32_t total = 0;
    for (int64_t i = 0; i < kBlockColumns; ++i) {
      const auto code = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
      total += code;
      const int32_t upper = to.lower_codes == nullptr ? code : (code + kUpper / 2) >> 7;
      to.codes[first + i] = static_cast<int8_t>(upper);
      if (to.lower_codes != nullptr) {
        to.lower_codes[first + i] = static_cast<int8_t>(code - kUpper * upper);
      }
    }
    to.scales[at] = most / limit;
    to.sums[at] = to.scales[at] * static_cast<float>(total);
  }
}

float half_at(const uint8_t* halves, int64_t index) {
  uint16_t half = 0;
  std::memcpy(&half, halves + 2 * index, sizeof(half));
  return c10::Half(half, c10::Half::from_bits());
}

// Four columns of a row, whose sums of products are whole numbers below 2^24 and so exact.
using Four = float __attribute__((vector_size(16)));
constexpr int64_t kSteps = kBlockColumns / 4;

// A block as numbers.
struct Block {
  float scales[kPanelRows];
  float offsets[kPanelRows];
  Four codes[kSteps][kPanelRows];
};

Four four_of(const uint8_t* codes, int shift, int mask) {
  const auto code = [&](int i) { return static_cast<float>(codes[i] >> shift & mask); };
  return Four{code(0), code(1), code(2), code(3)};
}

void unpack(const Panels& w, const uint8_t* from, Block& block) {
  const uint8_t* codes = from + kPanelRows * (w.is_symmetric ? 2 : 4);
  for (int64_t row = 0; row < kPanelRows; ++row) {
    block.scales[row] = half_at(from, row);
    block.offsets[row] = w.is_symmetric ? block.scales[row] * (w.bits == 4 ? -8.0F : -128.0F)
                                        : half_at(from, kPanelRows + row);
    for (int64_t step = 0; step < kSteps; ++step) {
      const int64_t stored = w.bits == 8 ? step : step % 4;
      const uint8_t* place = codes + 4 * (kPanelRows * stored + row);
      const bool is_upper = w.bits == 4 && step >= 4;
      block.codes[step][row] = four_of(place, is_upper ? 4 : 0, w.bits == 8 ? 255 : 15);
    }
  }
}

// A token's codes of a block; numbers of 16 bits times weights of 4 are still exact sums.
using TokenBlock = float[kBlockColumns];

void read_token(const RoundedInputs& x, int64_t at, TokenBlock& token) {
  const int64_t first = at * kBlockColumns;
  for (int64_t i = 0; i < kBlockColumns; ++i) {
    const int32_t code = x.codes[first + i];
    token[i] = static_cast<float>(
        x.lower_codes == nullptr ? code : kUpper * code + x.lower_codes[first + i]);
  }
}

// y += a block's part of the products of one token.
void add_block(const Block& block, const TokenBlock& x, float scale, float sum, float* y) {
  Four totals[kPanelRows] = {};
  for (int64_t step = 0; step < kSteps; ++step) {
    const float* from = x + 4 * step;
    const Four inputs = {from[0], from[1], from[2], from[3]};
    for (int64_t row = 0; row < kPanelRows; ++row) totals[row] += block.codes[step][row] * inputs;
  }
  for (int64_t row = 0; row < kPanelRows; ++row) {
    const Four& four = totals[row];
    const float total = four[0] + four[1] + (four[2] + four[3]);
    y[row] += total * (block.scales[row] * scale) + block.offsets[row] * sum;
  }
}

void multiply(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
              const PanelOutputs& y) {
  Block block;
  for (int64_t panel = 0; panel < count; ++panel) {
    float* rows = y.data + panel * kPanelRows;
    for (int64_t t = 0; t < x.tokens; ++t) {
      for (int64_t row = 0; row < kPanelRows; ++row) rows[t * y.stride + row] = 0;
    }
    for (int64_t b = 0; b < w.num_blocks; ++b) {
      unpack(w, w.data + (first + panel) * w.panel_bytes() + b * w.block_bytes(), block);
      for (int64_t t = 0; t < x.tokens; ++t) {
        const int64_t tile = t / kTileTokens * kTileTokens;
        const int64_t at = tile * w.num_blocks + b * x.tile_tokens(tile) + t - tile;
        TokenBlock token;
        read_token(x, at, token);
        add_block(block, token, x.scales[at], x.sums[at], rows + t * y.stride);
      }
    }
  }
}

}  // namespace

const PanelKernel kPlainPanelKernel = {"plain", runs_here, round, multiply};

}  // namespace weft::quant::kernels
