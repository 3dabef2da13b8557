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

// Sixteen rows' products of one block. Two sums, so that one step need not wait for the last.
[[gnu::always_inline]] inline __m512 products(const Block& block, const int8_t* x) {
  __m512i even = _mm512_setzero_si512(), odd = _mm512_setzero_si512();
  for (int j = 0; j < kSteps; j += 2) {
    int four[2];
    __builtin_memcpy(four, x + 4 * j, sizeof(four));
    even = _mm512_dpbusd_epi32(even, block.codes[j], _mm512_set1_epi32(four[0]));
    odd = _mm512_dpbusd_epi32(odd, block.codes[j + 1], _mm512_set1_epi32(four[1]));
  }
  return _mm512_cvtepi32_ps(_mm512_add_epi32(even, odd));
}

// One panel for kTokens tokens from `token` on.
template <int kBits, bool kIsSymmetric, int kTokens>
void multiply_panel(const uint8_t* w, int64_t num_blocks, const RoundedInputs& x, int64_t token,
                    const PanelOutputs& y) {
  constexpr int64_t kBytes = kPanelRows * ((kIsSymmetric ? 2 : 4) + kBlockColumns * kBits / 8);
  __m512 sums[kTokens];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (int64_t b = 0; b < num_blocks; ++b, w += kBytes) {
    const Block block = load_block<kBits, kIsSymmetric>(w);
    for (int t = 0; t < kTokens; ++t) {
      const int64_t at = (token + t) * num_blocks + b;
      const __m512 scales = _mm512_mul_ps(block.scales, _mm512_set1_ps(x.scales[at]));
      sums[t] = _mm512_fmadd_ps(products(block, x.codes + at * kBlockColumns), scales, sums[t]);
      sums[t] = _mm512_fmadd_ps(block.offsets, _mm512_set1_ps(x.sums[at]), sums[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    _mm512_storeu_ps(y.data + (token + t) * y.stride, sums[t]);
  }
}

// A panel stays in the first level cache for all tokens.
template <int kBits, bool kIsSymmetric>
void multiply_all(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                  const PanelOutputs& y) {
  const uint8_t* panel = w.data + first * w.panel_bytes();
  for (int64_t i = 0; i < count; ++i, panel += w.panel_bytes()) {
    const PanelOutputs rows = {y.data + i * kPanelRows, y.stride};
    int64_t t = 0;
    for (; t + 8 <= x.tokens; t += 8) {
      multiply_panel<kBits, kIsSymmetric, 8>(panel, w.num_blocks, x, t, rows);
    }
    for (; t + 4 <= x.tokens; t += 4) {
      multiply_panel<kBits, kIsSymmetric, 4>(panel, w.num_blocks, x, t, rows);
    }
    for (; t < x.tokens; ++t) {
      multiply_panel<kBits, kIsSymmetric, 1>(panel, w.num_blocks, x, t, rows);
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

void round(const float* x, int64_t num_blocks, int8_t* codes, float* scales, float* sums) {
  for (int64_t block = 0; block < num_blocks; ++block) {
    round_block(x + block * kBlockColumns, codes + block * kBlockColumns, scales[block],
                sums[block]);
  }
}

}  // namespace

const PanelKernel kAvx512VnniPanelKernel = {"avx512_vnni", runs_here, round, multiply};

}  // namespace weft::quant::kernels

#endif
