#include <c10/util/Half.h>

#include <cmath>
#include <cstring>

#include "weft/quant/kernels/panel_kernel.h"

namespace weft::quant::kernels {
namespace {

bool runs_here() { return true; }

void round_block(const float* x, int8_t* codes, float& scale, float& sum) {
  float most = 0;
  for (int64_t i = 0; i < kBlockColumns; ++i) most = std::fmax(most, std::fabs(x[i]));
  scale = most / 127;
  const float inverse = most > 0 ? 127 / most : 0;
  int32_t total = 0;
  for (int64_t i = 0; i < kBlockColumns; ++i) {
    codes[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    total += codes[i];
  }
  sum = scale * static_cast<float>(total);
}

void round(const float* x, int64_t num_blocks, int8_t* codes, float* scales, float* sums) {
  for (int64_t block = 0; block < num_blocks; ++block) {
    round_block(x + block * kBlockColumns, codes + block * kBlockColumns, scales[block],
                sums[block]);
  }
}

// The code of (row, column) of a block whose codes begin at `codes`.
int32_t code_at(const uint8_t* codes, int64_t bits, int64_t row, int64_t column) {
  const int64_t step = column / 4, place = 4 * row + column % 4;
  if (bits == 8) return codes[4 * kPanelRows * step + place];
  const uint8_t both = codes[4 * kPanelRows * (step % 4) + place];
  return step < 4 ? both & 15 : both >> 4;
}

float half_at(const uint8_t* halves, int64_t index) {
  uint16_t half = 0;
  std::memcpy(&half, halves + 2 * index, sizeof(half));
  return c10::Half(half, c10::Half::from_bits());
}

// y += a block's part of the products of one token.
void add_block(const Panels& w, const uint8_t* block, const int8_t* x, float scale, float sum,
               float* y) {
  const uint8_t* codes = block + kPanelRows * (w.is_symmetric ? 2 : 4);
  const float middle = w.bits == 4 ? -8.0F : -128.0F;
  for (int64_t row = 0; row < kPanelRows; ++row) {
    int32_t total = 0;
    for (int64_t c = 0; c < kBlockColumns; ++c) total += code_at(codes, w.bits, row, c) * x[c];
    const float w_scale = half_at(block, row);
    const float offset = w.is_symmetric ? w_scale * middle : half_at(block, kPanelRows + row);
    y[row] += static_cast<float>(total) * (w_scale * scale) + offset * sum;
  }
}

void multiply(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
              const PanelOutputs& y) {
  for (int64_t panel = 0; panel < count; ++panel) {
    const uint8_t* blocks = w.data + (first + panel) * w.panel_bytes();
    for (int64_t t = 0; t < x.tokens; ++t) {
      float* sums = y.data + t * y.stride + panel * kPanelRows;
      for (int64_t row = 0; row < kPanelRows; ++row) sums[row] = 0;
      for (int64_t b = 0; b < w.num_blocks; ++b) {
        const int64_t at = t * w.num_blocks + b;
        add_block(w, blocks + b * w.block_bytes(), x.codes + at * kBlockColumns, x.scales[at],
                  x.sums[at], sums);
      }
    }
  }
}

}  // namespace

const PanelKernel kPlainPanelKernel = {"plain", runs_here, round, multiply};

}  // namespace weft::quant::kernels
