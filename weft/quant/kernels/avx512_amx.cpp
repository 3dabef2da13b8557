#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/core/amx.h"
#include "weft/quant/kernels/avx512_blocks.h"
#include "weft/quant/kernels/panel_kernel.h"

// A tile register's product takes rows of activations (a token each) and, as a panel has them,
// pairs of bfloat16 of sixteen rows of weights; of the result, a row is a token's products with
// those.

namespace weft::quant::kernels {
namespace {

bool runs_here() { return core::has_amx() && kAvx512Bf16PanelKernel.runs_here(); }

constexpr int kTokens = core::TileShapes::kRows;

// Two columns of numbers, one row in each lane, as pairs.
__m512i pair_of(__m512 first, __m512 second) {
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512bh both = _mm512_cvtne2ps_pbh(second, first);
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(both));
}

// Column `column` of a step of four, the same bits as the reference.
[[gnu::always_inline]] inline __m512 column_of(__m512i step, int column, __m512 scale,
                                               __m512 offset) {
  const __m512i codes =
      _mm512_and_si512(_mm512_srli_epi32(step, 8 * column), _mm512_set1_epi32(255));
  return _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(codes), scale), offset);
}

template <PanelNumbers kNumbers, int kGroups, bool kIsShared>
void write_pairs(const Panels& w, int64_t panel, uint16_t* to) {
  const PanelForm form = w.form;
  const uint8_t* from = w.data + panel * w.panel_bytes();
  const auto* const shared = reinterpret_cast<const float*>(from);
  from += w.shared_bytes();
  for (int64_t b = 0; b < w.num_blocks; ++b, from += form.block_bytes()) {
    const Block<kGroups> block = load_block<kNumbers, kGroups, kIsShared>(
        form, from, shared + b / kSharedBlocks * form.shared_numbers());
#pragma GCC unroll 8
    for (int j = 0; j < kSteps; ++j, to += 4 * kPanelRows) {
      const int g = j * kGroups / kSteps;
      const auto column = [&](int i) {
        return column_of(block.codes[j], i, block.scales[g], block.offsets[g]);
      };
      _mm512_storeu_si512(to, pair_of(column(0), column(1)));
      _mm512_storeu_si512(to + 2 * kPanelRows, pair_of(column(2), column(3)));
    }
  }
}

template <PanelNumbers kNumbers>
void write_pairs_of(const Panels& w, int64_t panel, uint16_t* to) {
  const bool is_shared = w.form.scales == PanelScales::kInt8;
  if (w.form.groups == 1) {
    return is_shared ? write_pairs<kNumbers, 1, true>(w, panel, to)
                     : write_pairs<kNumbers, 1, false>(w, panel, to);
  }
  return is_shared ? write_pairs<kNumbers, 2, true>(w, panel, to)
                   : write_pairs<kNumbers, 2, false>(w, panel, to);
}

void unpack_codes(const Panels& w, int64_t panel, uint16_t* to) {
  switch (w.form.numbers) {
    case PanelNumbers::kCodes4:
      return write_pairs_of<PanelNumbers::kCodes4>(w, panel, to);
    case PanelNumbers::kCodes6:
      return write_pairs_of<PanelNumbers::kCodes6>(w, panel, to);
    case PanelNumbers::kTable4:
      return write_pairs_of<PanelNumbers::kTable4>(w, panel, to);
    default:
      return write_pairs_of<PanelNumbers::kCodes8>(w, panel, to);
  }
}

// One tile of tokens, or two: `first` and `second` are their first blocks, `rows` and `others` how
// many tokens they have.
struct TokenTiles {
  TokenTiles(const BFloat16Inputs& x, int64_t num_blocks, int64_t token)
      : first(x.data + token * num_blocks * kBlockColumns),
        second(first + kTokens * num_blocks * kBlockColumns),
        rows(x.tokens - token < kTokens ? x.tokens - token : kTokens),
        others(x.tokens - token - rows < kTokens ? x.tokens - token - rows : kTokens) {}
  const uint16_t *first, *second;
  int64_t rows, others;
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

// Tokens times one panel, or two that lie panel_bytes apart.
template <bool kHasOtherTokens, bool kHasOtherPanel>
void multiply_tiles(const uint8_t* panel, int64_t panel_bytes, int64_t num_blocks,
                    const TokenTiles& tokens, const PanelOutputs& y) {
  const int64_t y_bytes = 4 * y.stride;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t b = 0; b < num_blocks; ++b, panel += kPanelRows * kBlockBytes) {
    _tile_loadd(6, panel, kBlockBytes);
    _tile_loadd(4, tokens.first + b * tokens.rows * kBlockColumns, kBlockBytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kHasOtherPanel) {
      _tile_loadd(7, panel + panel_bytes, kBlockBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kHasOtherTokens) {
      _tile_loadd(5, tokens.second + b * tokens.others * kBlockColumns, kBlockBytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kHasOtherPanel) _tile_dpbf16ps(3, 5, 7);
    }
  }
  float* const others = y.data + kTokens * y.stride;
  _tile_stored(0, y.data, y_bytes);
  if constexpr (kHasOtherPanel) _tile_stored(1, y.data + kPanelRows, y_bytes);
  if constexpr (kHasOtherTokens) _tile_stored(2, others, y_bytes);
  if constexpr (kHasOtherTokens && kHasOtherPanel) _tile_stored(3, others + kPanelRows, y_bytes);
}

// For whole pairs of tiles of tokens, or the last tokens that fill none.
void multiply_tokens(const Panels& w, int64_t first, int64_t count, const BFloat16Inputs& x,
                     const PanelOutputs& y) {
  const core::TileSession tiles(shapes_for({x, w.num_blocks, 0}));
  const bool has_other_tokens = x.tokens > kTokens;
  for (int64_t i = 0; i < count; i += 2) {
    const bool has_other_panel = i + 1 < count;
    const auto multiply_some =
        has_other_tokens
            ? (has_other_panel ? multiply_tiles<true, true> : multiply_tiles<true, false>)
            : (has_other_panel ? multiply_tiles<false, true> : multiply_tiles<false, false>);
    for (int64_t t = 0; t < x.tokens; t += 2 * kTokens) {
      multiply_some(w.data + (first + i) * w.panel_bytes(), w.panel_bytes(), w.num_blocks,
                    {x, w.num_blocks, t}, {y.data + t * y.stride + i * kPanelRows, y.stride});
    }
  }
}

void multiply_bfloat16(const Panels& w, int64_t first, int64_t count, const BFloat16Inputs& x,
                       const PanelOutputs& y) {
  core::finish_writes(x.data);
  const int64_t rest = x.tokens % (2 * kTokens), most = x.tokens - rest;
  if (most > 0) multiply_tokens(w, first, count, {x.data, most}, y);
  if (rest == 0) return;
  multiply_tokens(w, first, count, {x.data + most * w.num_blocks * kBlockColumns, rest},
                  {y.data + most * y.stride, y.stride});
}

}  // namespace

const PanelKernel kAmxPanelKernel = {"amx",
                                     runs_here,
                                     round_codes_avx512,
                                     multiply_codes_avx512,
                                     multiply_dense_avx512,
                                     unpack_short_avx512,
                                     round_bfloat16_avx512,
                                     multiply_bfloat16,
                                     unpack_codes,
                                     2,
                                     kTokens};

}  // namespace weft::quant::kernels

#endif
