#pragma once

#include <immintrin.h>

#include "weft/quant/kernels/panel_kernel.h"

/// Reading codes of a block of a panel with AVX2, half of its rows at a time. All functions are
/// static: each file that includes this has its own, compiled for its instruction set.
namespace weft::quant::kernels {

/// Steps of four columns in a block.
inline constexpr int kSteps = kBlockColumns / 4;

/// Any 32 bytes.
[[gnu::always_inline]] static inline __m256i load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

/// The lower four bits of each byte.
[[gnu::always_inline]] static inline __m256i low_nibbles(__m256i bytes) {
  return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}
/// The upper four bits of each byte.
[[gnu::always_inline]] static inline __m256i high_nibbles(__m256i bytes) {
  return low_nibbles(_mm256_srli_epi16(bytes, 4));
}

/// Four steps of codes of 6 bits out of three vectors.
[[gnu::always_inline]] static inline void load_sixes(const uint8_t* from, __m256i* steps) {
  const __m256i a = load(from), b = load(from + 4 * kPanelRows), c = load(from + 8 * kPanelRows);
  const __m256i six = _mm256_set1_epi8(63);
  steps[0] = _mm256_and_si256(a, six);
  steps[1] = _mm256_and_si256(b, six);
  steps[2] = _mm256_and_si256(c, six);
  const __m256i low = _mm256_and_si256(_mm256_srli_epi16(a, 6), _mm256_set1_epi8(3));
  const __m256i middle = _mm256_and_si256(_mm256_srli_epi16(b, 4), _mm256_set1_epi8(12));
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(c, 2), _mm256_set1_epi8(48));
  steps[3] = _mm256_or_si256(_mm256_or_si256(low, middle), high);
}

/// Eight steps of two bits out of two vectors.
[[gnu::always_inline]] static inline void load_twos(const uint8_t* from, __m256i* steps) {
  const __m256i two = _mm256_set1_epi8(3);
#pragma GCC unroll 2
  for (int v = 0; v < 2; ++v) {
    const __m256i four = load(from + 4 * kPanelRows * v);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      steps[4 * v + j] = _mm256_and_si256(_mm256_srli_epi16(four, 2 * j), two);
    }
  }
}

/// Eight steps of four bits out of four vectors.
[[gnu::always_inline]] static inline void load_fours(const uint8_t* from, __m256i* steps) {
#pragma GCC unroll 4
  for (int j = 0; j < kSteps / 2; ++j) {
    const __m256i both = load(from + 4 * kPanelRows * j);
    steps[j] = low_nibbles(both);
    steps[j + kSteps / 2] = high_nibbles(both);
  }
}

/// Adds each step's bit kBit, out of a vector that has one of each.
template <int kBit>
[[gnu::always_inline]] static inline void add_highest(const uint8_t* from, __m256i* steps) {
  const __m256i bits = load(from), one = _mm256_set1_epi8(1 << kBit);
#pragma GCC unroll 8
  for (int j = 0; j < kSteps; ++j) {
    const __m256i own =
        j < kBit ? _mm256_slli_epi16(bits, kBit - j) : _mm256_srli_epi16(bits, j - kBit);
    steps[j] = _mm256_or_si256(steps[j], _mm256_and_si256(own, one));
  }
}

}  // namespace weft::quant::kernels
