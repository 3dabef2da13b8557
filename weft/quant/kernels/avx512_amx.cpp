#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/core/amx.h"
#include "weft/quant/kernels/avx512_blocks.h"
#include "weft/quant/kernels/avx512_parts.h"
#include "weft/quant/kernels/panel_kernel.h"

// A tile register's product takes rows of activations (a token each) and, as a panel has them,
// pairs of bfloat16 of sixteen rows of weights; of the result, a row is a token's products with
// those.

namespace weft::quant::kernels {
namespace {

bool runs_here() { return core::has_amx() && kAvx512Bf16PanelKernel.runs_here(); }

constexpr int kTokens = core::TileShapes::kRows;

// The numbers of the lower half beside those of the upper one.
__m512i beside(__m512bh both) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(both));
}

// Two columns of numbers, one row in each lane, as pairs.
template <bool kHasLow>
[[gnu::always_inline]] inline void write_pair(__m512 first, __m512 second, const BFloat16Parts& to,
                                              int64_t at) {
  const __m512bh rounded = _mm512_cvtne2ps_pbh(second, first);
  _mm512_storeu_si512(to.high + at, beside(rounded));
  if constexpr (kHasLow) {
    _mm512_storeu_si512(to.low + at, beside(low_parts(first, second, rounded)));
  }
}

// Column `column` of a step of four, the same bits as the reference.
[[gnu::always_inline]] inline __m512 column_of(__m512i step, int column, __m512 scale,
                                               __m512 offset) {
  const __m512i codes =
      _mm512_and_si512(_mm512_srli_epi32(step, 8 * column), _mm512_set1_epi32(255));
  return _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(codes), scale), offset);
}

template <PanelNumbers kNumbers, int kGroups, bool kIsShared, bool kHasLow>
void write_pairs(const Panels& w, int64_t panel, const BFloat16Parts& to) {
  const PanelForm form = w.form;
  const uint8_t* from = w.data + panel * w.panel_bytes();
  const auto* const shared = reinterpret_cast<const float*>(from);
  from += w.shared_bytes();
  int64_t at = 0;
  for (int64_t b = 0; b < w.num_blocks; ++b, from += form.block_bytes()) {
    const Block<kGroups> block = load_block<kNumbers, kGroups, kIsShared>(
        form, from, shared + b / kSharedBlocks * form.shared_numbers());
#pragma GCC unroll 8
    for (int j = 0; j < kSteps; ++j, at += 4 * kPanelRows) {
      const int g = j * kGroups / kSteps;
      const auto column = [&](int i) {
        return column_of(block.codes[j], i, block.scales[g], block.offsets[g]);
      };
      write_pair<kHasLow>(column(0), column(1), to, at);
      write_pair<kHasLow>(column(2), column(3), to, at + 2 * kPanelRows);
    }
  }
}

template <PanelNumbers kNumbers, bool kHasLow>
void write_pairs_of(const Panels& w, int64_t panel, const BFloat16Parts& to) {
  const bool is_shared = w.form.scales == PanelScales::kInt8;
  if (w.form.groups == 1) {
    return is_shared ? write_pairs<kNumbers, 1, true, kHasLow>(w, panel, to)
                     : write_pairs<kNumbers, 1, false, kHasLow>(w, panel, to);
  }
  return is_shared ? write_pairs<kNumbers, 2, true, kHasLow>(w, panel, to)
                   : write_pairs<kNumbers, 2, false, kHasLow>(w, panel, to);
}

template <bool kHasLow>
void unpack_parts(const Panels& w, int64_t panel, const BFloat16Parts& to) {
  switch (w.form.numbers) {
    case PanelNumbers::kCodes2:
      return write_pairs_of<PanelNumbers::kCodes2, kHasLow>(w, panel, to);
    case PanelNumbers::kCodes3:
      return write_pairs_of<PanelNumbers::kCodes3, kHasLow>(w, panel, to);
    case PanelNumbers::kCodes4:
      return write_pairs_of<PanelNumbers::kCodes4, kHasLow>(w, panel, to);
    case PanelNumbers::kCodes5:
      return write_pairs_of<PanelNumbers::kCodes5, kHasLow>(w, panel, to);
    case PanelNumbers::kCodes6:
      return write_pairs_of<PanelNumbers::kCodes6, kHasLow>(w, panel, to);
    case PanelNumbers::kTable3:
      return write_pairs_of<PanelNumbers::kTable3, kHasLow>(w, panel, to);
    case PanelNumbers::kTable4:
      return write_pairs_of<PanelNumbers::kTable4, kHasLow>(w, panel, to);
    default:
      return write_pairs_of<PanelNumbers::kCodes8, kHasLow>(w, panel, to);
  }
}

void unpack_codes(const Panels& w, int64_t panel, const BFloat16Parts& to) {
  return to.low == nullptr ? unpack_parts<false>(w, panel, to) : unpack_parts<true>(w, panel, to);
}

// One tile of tokens, or two: `first` and `second` are their first blocks, `rows` and `others` how
// many tokens they have, `to_low` how far behind the tokens' numbers their low parts lie.
struct TokenTiles {
  TokenTiles(const BFloat16Inputs& x, int64_t num_blocks, int64_t token)
      : first(x.data + token * num_blocks * kBlockColumns),
        second(first + kTokens * num_blocks * kBlockColumns),
        rows(x.tokens - token < kTokens ? x.tokens - token : kTokens),
        others(x.tokens - token - rows < kTokens ? x.tokens - token - rows : kTokens),
        to_low(x.low == nullptr ? 0 : x.low - x.data) {}
  const uint16_t *first, *second;
  int64_t rows, others, to_low;
};

constexpr int64_t kBlockBytes = 2 * kBlockColumns;
static_assert(kBlockBytes == core::TileShapes::kBytes && kPanelRows == core::TileShapes::kRows);

// Registers 0 to 3 are results, of the first tile of tokens and the second with two panels each; 4
// and 5 the tokens; 6 and 7 the panels.
core::TileShapes shapes_for(const TokenTiles& tokens) {
  core::TileShapes shapes;
  // What is not used has a shape, too.
  const int64_t rows[2] = {tokens.rows, tokens.others > 0 ? tokens.others : kTokens};
  for (int tile = 0; tile < 4; ++tile) shapes.set(tile, rows[tile / 2], kBlockBytes);
  for (int tile = 4; tile < 6; ++tile) shapes.set(tile, rows[tile - 4], kBlockBytes);
  for (int tile = 6; tile < 8; ++tile) shapes.set(tile, kPanelRows, kBlockBytes);
  return shapes;
}

// One panel, or two that lie `bytes` apart; `to_low`: how far behind them their low parts lie.
struct PanelTiles {
  const uint8_t* first;
  int64_t bytes, to_low;
};

// What a product has beside one tile of tokens and one panel of one part.
struct Has {
  bool other_tokens, other_panel, low_tokens, low_panels;
};

template <Has kHas>
[[gnu::always_inline]] inline void load_panels(const uint8_t* panel, int64_t panel_bytes) {
  _tile_loadd(6, panel, kBlockBytes);
  if constexpr (kHas.other_panel) _tile_loadd(7, panel + panel_bytes, kBlockBytes);
}

template <Has kHas>
[[gnu::always_inline]] inline void load_tokens(const TokenTiles& tokens, int64_t block,
                                               int64_t to_part) {
  _tile_loadd(4, tokens.first + to_part + block * tokens.rows * kBlockColumns, kBlockBytes);
  if constexpr (kHas.other_tokens) {
    _tile_loadd(5, tokens.second + to_part + block * tokens.others * kBlockColumns, kBlockBytes);
  }
}

template <Has kHas>
[[gnu::always_inline]] inline void multiply_loaded() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kHas.other_panel) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kHas.other_tokens) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kHas.other_tokens && kHas.other_panel) _tile_dpbf16ps(3, 5, 7);
}

// Small products come first. Low parts have none with each other.
template <Has kHas>
void multiply_tiles(const PanelTiles& panels, int64_t num_blocks, const TokenTiles& tokens,
                    const PanelOutputs& y) {
  const int64_t y_bytes = 4 * y.stride;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const uint8_t* panel = panels.first;
  for (int64_t b = 0; b < num_blocks; ++b, panel += kPanelRows * kBlockBytes) {
    if constexpr (kHas.low_panels) {
      load_tokens<kHas>(tokens, b, 0);
      load_panels<kHas>(panel + panels.to_low, panels.bytes);
      multiply_loaded<kHas>();
    }
    load_panels<kHas>(panel, panels.bytes);
    if constexpr (kHas.low_tokens) {
      load_tokens<kHas>(tokens, b, tokens.to_low);
      multiply_loaded<kHas>();
    }
    if constexpr (kHas.low_tokens || !kHas.low_panels) load_tokens<kHas>(tokens, b, 0);
    multiply_loaded<kHas>();
  }
  float* const others = y.data + kTokens * y.stride;
  _tile_stored(0, y.data, y_bytes);
  if constexpr (kHas.other_panel) _tile_stored(1, y.data + kPanelRows, y_bytes);
  if constexpr (kHas.other_tokens) _tile_stored(2, others, y_bytes);
  if constexpr (kHas.other_tokens && kHas.other_panel)
    _tile_stored(3, others + kPanelRows, y_bytes);
}

using MultiplyTiles = decltype(&multiply_tiles<Has{}>);
template <bool kHasLowTokens, bool kHasLowPanels>
MultiplyTiles multiply_for(bool has_other_tokens, bool has_other_panel) {
  if (has_other_tokens) {
    return has_other_panel ? multiply_tiles<Has{true, true, kHasLowTokens, kHasLowPanels}>
                           : multiply_tiles<Has{true, false, kHasLowTokens, kHasLowPanels}>;
  }
  return has_other_panel ? multiply_tiles<Has{false, true, kHasLowTokens, kHasLowPanels}>
                         : multiply_tiles<Has{false, false, kHasLowTokens, kHasLowPanels}>;
}

MultiplyTiles multiply_for(const Has& has) {
  if (has.low_panels) {
    return has.low_tokens ? multiply_for<true, true>(has.other_tokens, has.other_panel)
                          : multiply_for<false, true>(has.other_tokens, has.other_panel);
  }
  return has.low_tokens ? multiply_for<true, false>(has.other_tokens, has.other_panel)
                        : multiply_for<false, false>(has.other_tokens, has.other_panel);
}

// For whole pairs of tiles of tokens, or the last tokens that fill none.
void multiply_tokens(const Panels& w, int64_t first, int64_t count, const BFloat16Inputs& x,
                     const PanelOutputs& y) {
  const core::TileSession tiles(shapes_for({x, w.num_blocks, 0}));
  for (int64_t i = 0; i < count; i += 2) {
    const MultiplyTiles multiply_some =
        multiply_for({x.tokens > kTokens, i + 1 < count, x.low != nullptr, w.low != nullptr});
    const PanelTiles panels{w.data + (first + i) * w.panel_bytes(), w.panel_bytes(),
                            w.low == nullptr ? 0 : w.low - w.data};
    for (int64_t t = 0; t < x.tokens; t += 2 * kTokens) {
      multiply_some(panels, w.num_blocks, {x, w.num_blocks, t},
                    {y.data + t * y.stride + i * kPanelRows, y.stride});
    }
  }
}

void multiply_bfloat16(const Panels& w, int64_t first, int64_t count, const BFloat16Inputs& x,
                       const PanelOutputs& y) {
  core::finish_writes(x.data);
  const int64_t rest = x.tokens % (2 * kTokens), most = x.tokens - rest;
  if (most > 0) multiply_tokens(w, first, count, {x.data, most, x.low}, y);
  if (rest == 0) return;
  const int64_t taken = most * w.num_blocks * kBlockColumns;
  multiply_tokens(w, first, count,
                  {x.data + taken, rest, x.low == nullptr ? nullptr : x.low + taken},
                  {y.data + most * y.stride, y.stride});
}

}  // namespace

const PanelKernel kAmxPanelKernel = {"amx",
                                     runs_here,
                                     round_codes_avx512,
                                     multiply_codes_avx512,
                                     multiply_dense_avx512,
                                     unpack_short_avx512,
                                     pack_short_avx512,
                                     round_bfloat16_avx512,
                                     multiply_bfloat16,
                                     unpack_codes,
                                     2,
                                     kTokens};

}  // namespace weft::quant::kernels

#endif
