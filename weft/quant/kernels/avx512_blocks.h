#pragma once

#include <immintrin.h>

#include "weft/quant/kernels/panel_kernel.h"

/// Reading a block of a panel with AVX-512. All functions are static: each file that includes this
/// has its own, compiled for its instruction set.
namespace weft::quant::kernels {

/// Steps of four columns in a block.
inline constexpr int kSteps = kBlockColumns / 4;

/// Sixteen float16.
[[gnu::always_inline]] static inline __m512 widen_halves(const uint8_t* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}

/// Sixteen int8.
[[gnu::always_inline]] static inline __m512 widen_bytes(const uint8_t* bytes) {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
}

/// A panel's scales, or offsets, of one group; kIsShared says that they are kInt8.
template <bool kIsShared>
[[gnu::always_inline]] static inline __m512 load_scales(const PanelForm& form, const uint8_t* from,
                                                        const float* shared) {
  if constexpr (kIsShared) return _mm512_mul_ps(widen_bytes(from), _mm512_loadu_ps(shared));
  return form.scales == PanelScales::kFloat32 ? _mm512_loadu_ps(from) : widen_halves(from);
}

/// A block's scales, offsets and codes, one step of four columns each.
template <int kGroups>
struct Block {
  __m512 scales[kGroups];
  __m512 offsets[kGroups];
  __m512i codes[kSteps];
};

/// Bits of `mask` from a, the others from b.
[[gnu::always_inline]] static inline __m512i choose(int mask, __m512i a, __m512i b) {
  return _mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(mask)), a, b, 0xCA);
}

/// Four steps of codes of 6 bits out of three vectors. Shifts bring in bits of the byte above,
/// which what chooses leaves out.
[[gnu::always_inline]] static inline void load_sixes(const uint8_t* from, __m512i* steps) {
  const __m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + 64);
  const __m512i c = _mm512_loadu_si512(from + 128), six = _mm512_set1_epi8(63);
  steps[0] = _mm512_and_si512(a, six);
  steps[1] = _mm512_and_si512(b, six);
  steps[2] = _mm512_and_si512(c, six);
  const __m512i lower = choose(3, _mm512_srli_epi16(a, 6), _mm512_srli_epi16(b, 4));
  steps[3] = _mm512_and_si512(choose(15, lower, _mm512_srli_epi16(c, 2)), six);
}

/// Eight steps of two bits out of two vectors.
[[gnu::always_inline]] static inline void load_twos(const uint8_t* from, __m512i* steps) {
  const __m512i two = _mm512_set1_epi8(3);
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    const __m512i four = _mm512_loadu_si512(from + 64 * v);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      steps[4 * v + j] = _mm512_and_si512(_mm512_srli_epi16(four, 2 * j), two);
    }
  }
}

/// Eight steps of four bits out of four vectors.
[[gnu::always_inline]] static inline void load_fours(const uint8_t* from, __m512i* steps) {
  constexpr int kHalf = kSteps / 2;
  const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 4
  for (int j = 0; j < kHalf; ++j) {
    const __m512i both = _mm512_loadu_si512(from + 64 * j);
    steps[j] = _mm512_and_si512(both, low);
    steps[j + kHalf] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
  }
}

/// Adds each step's bit kBit, out of a vector that has one of each.
template <int kBit>
[[gnu::always_inline]] static inline void add_highest(const uint8_t* from, __m512i* steps) {
  const __m512i bits = _mm512_loadu_si512(from);
#pragma GCC unroll 8
  for (int j = 0; j < kSteps; ++j) {
    const __m512i own =
        j < kBit ? _mm512_slli_epi16(bits, kBit - j) : _mm512_srli_epi16(bits, j - kBit);
    steps[j] = choose(1 << kBit, own, steps[j]);
  }
}

/// A block's codes of kNumbers, a byte each; `table` is PanelForm's.
template <PanelNumbers kNumbers>
[[gnu::always_inline]] static inline void load_codes(const uint8_t* from, const uint8_t* table,
                                                     __m512i* codes) {
  constexpr int kHalf = kSteps / 2;
  if constexpr (kNumbers == PanelNumbers::kCodes8) {
    for (int j = 0; j < kSteps; ++j) codes[j] = _mm512_loadu_si512(from + 64 * j);
  } else if constexpr (kNumbers == PanelNumbers::kCodes6) {
    load_sixes(from, codes);
    load_sixes(from + 3 * 64, codes + kHalf);
  } else if constexpr (kNumbers == PanelNumbers::kCodes2) {
    load_twos(from, codes);
  } else if constexpr (kNumbers == PanelNumbers::kCodes3 || kNumbers == PanelNumbers::kTable3) {
    load_twos(from, codes);
    add_highest<2>(from + 2 * 64, codes);
  } else {
    load_fours(from, codes);
    if constexpr (kNumbers == PanelNumbers::kCodes5) add_highest<4>(from + 4 * 64, codes);
  }
  if constexpr (kNumbers == PanelNumbers::kTable3 || kNumbers == PanelNumbers::kTable4) {
    const __m512i by_index =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    for (int j = 0; j < kSteps; ++j) codes[j] = _mm512_shuffle_epi8(by_index, codes[j]);
  }
}

/// The block that begins at `from`; `shared`: what this block and its neighbours share.
template <PanelNumbers kNumbers, int kGroups, bool kIsShared>
[[gnu::always_inline]] static inline Block<kGroups> load_block(const PanelForm& form,
                                                               const uint8_t* from,
                                                               const float* shared) {
  Block<kGroups> block;
  for (int g = 0; g < kGroups; ++g) {
    block.scales[g] = load_scales<kIsShared>(form, from, shared);
    from += form.scale_bytes();
    if (form.has_offsets) {
      block.offsets[g] = load_scales<kIsShared>(form, from, shared + kPanelRows);
      from += form.scale_bytes();
    } else {
      block.offsets[g] = _mm512_mul_ps(block.scales[g], _mm512_set1_ps(-form.zero));
    }
  }
  load_codes<kNumbers>(from, form.table, block.codes);
  return block;
}

}  // namespace weft::quant::kernels
