#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/panel_kernel.h"

namespace weft::quant::kernels {
namespace {

bool runs_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("f16c");
}

constexpr int kSteps = kBlockColumns / 4;

__m512 widen_halves(const uint8_t* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}

// A block's scales, offsets and codes, one step of four columns each.
struct Block {
  __m512 scales;
  __m512 offsets;
  __m512i codes[kSteps];
};

template <int kBits, bool kIsSymmetric>
[[gnu::always_inline]] inline Block load_block(const uint8_t* from) {
  Block block;
  block.scales = widen_halves(from);
  from += 2 * kPanelRows;
  if constexpr (kIsSymmetric) {
    block.offsets = _mm512_mul_ps(block.scales, _mm512_set1_ps(kBits == 4 ? -8.0F : -128.0F));
  } else {
    block.offsets = widen_halves(from);
    from += 2 * kPanelRows;
  }
  if constexpr (kBits == 8) {
    for (int j = 0; j < kSteps; ++j) block.codes[j] = _mm512_loadu_si512(from + 64 * j);
  } else {
    const __m512i low = _mm512_set1_epi8(15);
    for (int j = 0; j < kSteps / 2; ++j) {
      const __m512i both = _mm512_loadu_si512(from + 64 * j);
      block.codes[j] = _mm512_and_si512(both, low);
      block.codes[j + kSteps / 2] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
  }
  return block;
}

// Four columns of x for every row: a broadcast out of memory is part of the product that takes it.
[[gnu::always_inline]] inline __m512i broadcast(const int8_t* four) {
  using Word = int __attribute__((may_alias, aligned(1)));
  return _mm512_set1_epi32(*reinterpret_cast<const Word*>(four));
}

// Sixteen rows' products of one block. With kSums above 1, one step need not wait for the last.
template <int kSums>
[[gnu::always_inline]] inline __m512 products(const Block& block, const int8_t* x) {
  __m512i sums[kSums];
#pragma GCC unroll 8
  for (int j = 0; j < kSteps; ++j) {
    const __m512i sum = j < kSums ? _mm512_setzero_si512() : sums[j % kSums];
    sums[j % kSums] = _mm512_dpbusd_epi32(sum, block.codes[j], broadcast(x + 4 * j));
  }
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  return _mm512_cvtepi32_ps(sums[0]);
}

// One panel for a tile of kTokens tokens from `first` on.
template <int kBits, bool kIsSymmetric, int kTokens>
void multiply_panel(const uint8_t* w, int64_t num_blocks, const RoundedInputs& x, int64_t first,
                    const PanelOutputs& y) {
  constexpr int64_t kBytes = kPanelRows * ((kIsSymmetric ? 2 : 4) + kBlockColumns * kBits / 8);
  const int8_t* codes = x.codes + first * num_blocks * kBlockColumns;
  const float* scales = x.scales + first * num_blocks;
  const float* sums = x.sums + first * num_blocks;
  __m512 totals[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) totals[t] = _mm512_setzero_ps();
  for (int64_t b = 0; b < num_blocks; ++b, w += kBytes) {
    const Block block = load_block<kBits, kIsSymmetric>(w);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t, codes += kBlockColumns) {
      const __m512 scale = _mm512_mul_ps(block.scales, _mm512_set1_ps(*scales++));
      totals[t] =
          _mm512_fmadd_ps(products < kTokens < 4 ? 2 : 1 > (block, codes), scale, totals[t]);
      totals[t] = _mm512_fmadd_ps(block.offsets, _mm512_set1_ps(*sums++), totals[t]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    _mm512_storeu_ps(y.data + (first + t) * y.stride, totals[t]);
  }
}

// The same for any number of tokens from 1 to kMost.
template <int kBits, bool kIsSymmetric, int kMost = kTileTokens>
void multiply_tile(const uint8_t* w, int64_t num_blocks, const RoundedInputs& x, int64_t first,
                   const PanelOutputs& y) {
  if (kMost == 1 || x.tile_tokens(first) == kMost) {
    multiply_panel<kBits, kIsSymmetric, kMost>(w, num_blocks, x, first, y);
  } else if constexpr (kMost > 1) {
    multiply_tile<kBits, kIsSymmetric, kMost - 1>(w, num_blocks, x, first, y);
  }
}

// A panel stays in the first level cache for all tokens.
template <int kBits, bool kIsSymmetric>
void multiply_all(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                  const PanelOutputs& y) {
  const uint8_t* panel = w.data + first * w.panel_bytes();
  for (int64_t i = 0; i < count; ++i, panel += w.panel_bytes()) {
    for (int64_t t = 0; t < x.tokens; t += kTileTokens) {
      multiply_tile<kBits, kIsSymmetric>(panel, w.num_blocks, x, t,
                                         {y.data + i * kPanelRows, y.stride});
    }
  }
}

void multiply(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
              const PanelOutputs& y) {
  if (w.bits == 4) {
    return w.is_symmetric ? multiply_all<4, true>(w, first, count, x, y)
                          : multiply_all<4, false>(w, first, count, x, y);
  }
  return w.is_symmetric ? multiply_all<8, true>(w, first, count, x, y)
                        : multiply_all<8, false>(w, first, count, x, y);
}

void round_block(const float* x, int8_t* codes, float& scale, float& sum) {
  const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
  const float most = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
  scale = most / 127;
  const __m512 inverse = _mm512_set1_ps(most > 0 ? 127 / most : 0);
  const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
  const __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(a));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16), _mm512_cvtepi32_epi8(b));
  sum = scale * static_cast<float>(_mm512_reduce_add_epi32(_mm512_add_epi32(a, b)));
}

void round(const float* x, int64_t num_blocks, const RoundedToken& to) {
  for (int64_t block = 0; block < num_blocks; ++block) {
    const int64_t at = block * to.stride;
    round_block(x + block * kBlockColumns, to.codes + at * kBlockColumns, to.scales[at],
                to.sums[at]);
  }
}

}  // namespace

const PanelKernel kAvx512VnniPanelKernel = {"avx512_vnni", runs_here, round, multiply};

}  // namespace weft::quant::kernels

#endif
