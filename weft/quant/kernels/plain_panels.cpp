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
    int32_t total = 0, second = 0;
    for (int64_t i = 0; i < kBlockColumns; ++i) {
      const auto code = static_cast<int32_t>(std::nearbyint(x[i] * inverse));
      total += code;
      if (i >= kBlockColumns / 2) second += code;
      const int32_t upper = to.lower_codes == nullptr ? code : (code + kUpper / 2) >> 7;
      to.codes[first + i] = static_cast<int8_t>(upper);
      if (to.lower_codes != nullptr) {
        to.lower_codes[first + i] = static_cast<int8_t>(code - kUpper * upper);
      }
    }
    to.scales[at] = most / limit;
    to.sums[2 * at] = to.scales[at] * static_cast<float>(total);
    to.sums[2 * at + 1] = to.scales[at] * static_cast<float>(second);
  }
}

float float_at(const uint8_t* from, int64_t index) {
  float value = 0;
  std::memcpy(&value, from + 4 * index, sizeof(value));
  return value;
}

// Number `index` of a group's scales and offsets; `shared` are those of the blocks around.
float scale_at(const PanelForm& form, const uint8_t* from, const uint8_t* shared, int64_t index) {
  if (form.scales == PanelScales::kFloat32) return float_at(from, index);
  if (form.scales == PanelScales::kInt8) {
    return static_cast<float>(static_cast<int8_t>(from[index])) * float_at(shared, index);
  }
  uint16_t half = 0;
  std::memcpy(&half, from + 2 * index, sizeof(half));
  return c10::Half(half, c10::Half::from_bits());
}

// Four columns of a row, whose sums of products are whole numbers below 2^24 and so exact.
using Four = float __attribute__((vector_size(16)));
constexpr int64_t kSteps = kBlockColumns / 4;

// A block as numbers; the second half of its columns has the same scales unless there are groups.
struct Block {
  float scales[2][kPanelRows];
  float offsets[2][kPanelRows];
  Four codes[kSteps][kPanelRows];
};

Four four_of(const uint8_t* codes, int shift, int mask) {
  const auto code = [&](int i) { return static_cast<float>(codes[i] >> shift & mask); };
  return Four{code(0), code(1), code(2), code(3)};
}

// Codes of 6 bits: the fourth step's are two bits of each of the others.
Four six_of(const uint8_t* codes, int64_t step) {
  constexpr int64_t kStepBytes = 4 * kPanelRows;
  const uint8_t* half = codes + step / 4 * 3 * kStepBytes;
  if (step % 4 < 3) return four_of(half + step % 4 * kStepBytes, 0, 63);
  return four_of(half, 6, 3) + 4.0F * four_of(half + kStepBytes, 6, 3) +
         16.0F * four_of(half + 2 * kStepBytes, 6, 3);
}

void unpack_scales(const PanelForm& form, const uint8_t* from, const uint8_t* shared,
                   Block& block) {
  for (int64_t group = 0; group < 2; ++group) {
    const uint8_t* own = from + (form.groups == 1 ? 0 : group * form.header_bytes() / 2);
    for (int64_t row = 0; row < kPanelRows; ++row) {
      const float scale = scale_at(form, own, shared, row);
      block.scales[group][row] = scale;
      block.offsets[group][row] =
          form.has_offsets ? scale_at(form, own, shared, kPanelRows + row) : -form.zero * scale;
    }
  }
}

Four codes_of(const PanelForm& form, const uint8_t* codes, int64_t step) {
  constexpr int64_t kStepBytes = 4 * kPanelRows;
  if (form.numbers == PanelNumbers::kCodes6) return six_of(codes, step);
  if (form.numbers == PanelNumbers::kCodes8) return four_of(codes + kStepBytes * step, 0, 255);
  const bool is_by_two = form.bits() < 4;
  const int low_bits = is_by_two ? 2 : 4;
  const int64_t vector = is_by_two ? step / 4 : step % 4;
  const int shift = static_cast<int>(is_by_two ? step % 4 * 2 : step / 4 * 4);
  Four four = four_of(codes + kStepBytes * vector, shift, (1 << low_bits) - 1);
  if (form.bits() % 2 != 0) {
    const uint8_t* highest = codes + kStepBytes * (is_by_two ? 2 : 4);
    four += static_cast<float>(1 << low_bits) * four_of(highest, static_cast<int>(step), 1);
  }
  if (form.table == nullptr) return four;
  const auto code = [&](int i) {
    return static_cast<float>(form.table[static_cast<size_t>(four[i])]);
  };
  return Four{code(0), code(1), code(2), code(3)};
}

void unpack(const Panels& w, const uint8_t* panel, int64_t b, Block& block) {
  const PanelForm& form = w.form;
  const uint8_t* from = panel + w.shared_bytes() + b * form.block_bytes();
  unpack_scales(form, from, panel + b / kSharedBlocks * form.shared_numbers() * 4, block);
  for (int64_t row = 0; row < kPanelRows; ++row) {
    for (int64_t step = 0; step < kSteps; ++step) {
      block.codes[step][row] = codes_of(form, from + form.header_bytes() + 4 * row, step);
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

float sum_of(const Four& four) { return four[0] + four[1] + (four[2] + four[3]); }

// y += a block's part of the products of one token.
void add_block(const Block& block, const TokenBlock& x, float scale, const float* sums, float* y) {
  Four totals[2][kPanelRows] = {};
  for (int64_t step = 0; step < kSteps; ++step) {
    const float* from = x + 4 * step;
    const Four inputs = {from[0], from[1], from[2], from[3]};
    Four* own = totals[step / (kSteps / 2)];
    for (int64_t row = 0; row < kPanelRows; ++row) own[row] += block.codes[step][row] * inputs;
  }
  for (int64_t row = 0; row < kPanelRows; ++row) {
    y[row] += sum_of(totals[0][row]) * (block.scales[0][row] * scale) +
              sum_of(totals[1][row]) * (block.scales[1][row] * scale) +
              block.offsets[0][row] * (sums[0] - sums[1]) + block.offsets[1][row] * sums[1];
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
    for (int64_t b = w.first_block; b < w.first_block + w.num_blocks; ++b) {
      unpack(w, w.data + (first + panel) * w.panel_bytes(), b, block);
      for (int64_t t = 0; t < x.tokens; ++t) {
        const int64_t tile = t / kTileTokens * kTileTokens;
        const int64_t at = tile * w.blocks_of_row() + b * x.tile_tokens(tile) + t - tile;
        TokenBlock token;
        read_token(x, at, token);
        add_block(block, token, x.scales[at], x.sums + 2 * at, rows + t * y.stride);
      }
    }
  }
}

}  // namespace

const PanelKernel kPlainPanelKernel = {
    "plain", runs_here, round, multiply, multiply_dense_plain, unpack_short_plain, nullptr};

}  // namespace weft::quant::kernels
