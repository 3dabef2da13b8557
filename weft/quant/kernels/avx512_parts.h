#pragma once

#include <immintrin.h>

/// Second parts of numbers that were rounded to bfloat16, for the files of AVX512_BF16 alone.
namespace weft::quant::kernels {

/// What `rounded`, first numbers in its lower half, lacks of both vectors, rounded to nearest.
[[gnu::always_inline]] static inline __m512bh low_parts(__m512 first, __m512 second,
                                                        __m512bh rounded) {
  const auto bits = reinterpret_cast<__m512i>(rounded);
  const auto widened = [](__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  };
  const __m512 of_first = _mm512_sub_ps(first, widened(_mm512_castsi512_si256(bits)));
  const __m512 of_second = _mm512_sub_ps(second, widened(_mm512_extracti64x4_epi64(bits, 1)));
  return _mm512_cvtne2ps_pbh(of_second, of_first);
}

}  // namespace weft::quant::kernels
