#pragma once

#include <immintrin.h>

#include "weft/nn/kernels/pair_products.h"

namespace weft::nn::kernels {

/// What Vectors needs of AVX-512.
struct Avx512Types {
  using F = float __attribute__((vector_size(64)));
  using I = int32_t __attribute__((vector_size(64)));
  using U = uint32_t __attribute__((vector_size(64)));
  using Half = uint16_t __attribute__((vector_size(32)));
  using Bytes = int8_t __attribute__((vector_size(16)));
};

/// Vectors that round to bfloat16 and multiply pairs of it by AVX512_BF16's instructions. File: a
/// type in the unnamed namespace of the file that includes this.
template <class File>
struct Avx512Pairs : Vectors<Avx512Types> {
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmVectors = 4;

  static Half narrow(F values) { return reinterpret_cast<Half>(_mm512_cvtneps_pbh(values)); }
  using Vectors::store;
  static void store(F values, uint16_t* to) {
    const Half half = narrow(values);
    __builtin_memcpy(to, &half, sizeof(half));
  }
  // A whole vector at once, which what reads it next need not wait for.
  static void store_two(F first, F second, uint16_t* to) {
    const __m512bh both = _mm512_cvtne2ps_pbh(second, first);
    __builtin_memcpy(to, &both, sizeof(both));
  }
  static void store_pairs(F low, F high, Pair* to) {
    const U pairs =
        __builtin_convertvector(narrow(low), U) | __builtin_convertvector(narrow(high), U) << 16;
    __builtin_memcpy(to, &pairs, sizeof(pairs));
  }
};

/// Step<V, Pair> of such a V.
struct Avx512PairStep {
  using Row = __m512i;
  [[gnu::always_inline]] static Row load(const Pair* from) { return _mm512_loadu_si512(from); }
  [[gnu::always_inline]] static Avx512Types::F add(Avx512Types::F sum, Row row, Pair pair) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(row),
                            reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(pair))));
  }
};

}  // namespace weft::nn::kernels
