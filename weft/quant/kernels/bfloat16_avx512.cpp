#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "weft/quant/kernels/avx512_parts.h"
#include "weft/quant/kernels/panel_kernel.h"

namespace weft::quant::kernels {
namespace {

// Sums of so many tokens and panels fill the registers: a step of the loop reads a vector of each
// panel's weights and one pair of numbers of each token for kTokens * kAvx512Bf16Panels products.
constexpr int64_t kTokens = kTileTokens;

// Panels that are multiplied together.
struct Group {
  const uint8_t* first;
  int64_t panel_bytes, num_blocks;
};

__m512bh as_pairs(__m512i bits) { return reinterpret_cast<__m512bh>(bits); }

__m512bh broadcast_pair(const uint16_t* from) {
  int pair = 0;
  std::memcpy(&pair, from, sizeof(pair));
  return as_pairs(_mm512_set1_epi32(pair));
}

// sums += two columns of each panel times a token's two numbers.
template <int kPanels>
[[gnu::always_inline]] inline void add_pair(const __m512bh (&w)[kPanels], __m512bh pair,
                                            __m512 (&sums)[kPanels]) {
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) sums[p] = _mm512_dpbf16_ps(sums[p], w[p], pair);
}

template <int kPanels, int kCount, bool kHasLow>
void multiply_tile(const Group& group, const BFloat16Inputs& x, const PanelOutputs& y) {
  __m512 sums[kCount][kPanels];
  for (auto& token : sums) {
    for (auto& sum : token) sum = _mm512_setzero_ps();
  }
  const uint16_t* pairs = x.data;
  const int64_t to_low = kHasLow ? x.low - x.data : 0;
  const uint8_t* panel = group.first;
  for (int64_t b = 0; b < group.num_blocks; ++b, pairs += (kCount - 1) * kBlockColumns) {
    for (int64_t i = 0; i < kBlockColumns / 2; ++i, pairs += 2, panel += 64) {
      __m512bh w[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        w[p] = as_pairs(_mm512_loadu_si512(panel + p * group.panel_bytes));
      }
#pragma GCC unroll 8
      for (int t = 0; t < kCount; ++t) {
        const uint16_t* from = pairs + t * kBlockColumns;
        if constexpr (kHasLow) add_pair(w, broadcast_pair(from + to_low), sums[t]);
        add_pair(w, broadcast_pair(from), sums[t]);
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kCount; ++t) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      _mm512_storeu_ps(y.data + t * y.stride + p * kPanelRows, sums[t][p]);
    }
  }
}

// As many tokens as x has, 1 to kMost.
template <int kPanels, int kMost>
void multiply_tokens(const Group& group, const BFloat16Inputs& x, const PanelOutputs& y) {
  if (kMost == 1 || x.tokens == kMost) {
    const auto multiply_own = x.low == nullptr ? multiply_tile<kPanels, kMost, false>
                                               : multiply_tile<kPanels, kMost, true>;
    multiply_own(group, x, y);
  } else if constexpr (kMost > 1) {
    multiply_tokens<kPanels, kMost - 1>(group, x, y);
  }
}

template <int kPanels>
void multiply_group(const Group& group, const BFloat16Inputs& x, const PanelOutputs& y) {
  for (int64_t t = 0; t < x.tokens; t += kTokens) {
    const int64_t tokens = x.tokens - t < kTokens ? x.tokens - t : kTokens;
    const int64_t first = t * group.num_blocks * kBlockColumns;
    multiply_tokens<kPanels, kTokens>(
        group, {x.data + first, tokens, x.low == nullptr ? nullptr : x.low + first},
        {y.data + t * y.stride, y.stride});
  }
}

}  // namespace

void round_bfloat16_avx512(const float* x, int64_t num_blocks, const BFloat16Parts& to,
                           int64_t stride) {
  static_assert(kBlockColumns == 32);
  for (int64_t b = 0; b < num_blocks; ++b, x += kBlockColumns) {
    const __m512 first = _mm512_loadu_ps(x), second = _mm512_loadu_ps(x + 16);
    const __m512bh rounded = _mm512_cvtne2ps_pbh(second, first);
    std::memcpy(to.high + b * stride * kBlockColumns, &rounded, sizeof(rounded));
    if (to.low == nullptr) continue;
    const __m512bh low = low_parts(first, second, rounded);
    std::memcpy(to.low + b * stride * kBlockColumns, &low, sizeof(low));
  }
}

void multiply_bfloat16_avx512(const Panels& w, int64_t first, int64_t count,
                              const BFloat16Inputs& x, const PanelOutputs& y) {
  static_assert(kAvx512Bf16Panels == 3);
  for (int64_t i = 0; i < count;) {
    const Group group{w.data + (first + i) * w.panel_bytes(), w.panel_bytes(), w.num_blocks};
    const PanelOutputs to{y.data + i * kPanelRows, y.stride};
    const int64_t panels = count - i < kAvx512Bf16Panels ? count - i : kAvx512Bf16Panels;
    if (panels == 1) multiply_group<1>(group, x, to);
    if (panels == 2) multiply_group<2>(group, x, to);
    if (panels == 3) multiply_group<3>(group, x, to);
    i += panels;
  }
}

}  // namespace weft::quant::kernels

#endif
