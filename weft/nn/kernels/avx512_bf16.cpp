#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/nn/kernels/pair_products.h"

namespace weft::nn::kernels {
namespace {

struct Types {
  using F = float __attribute__((vector_size(64)));
  using I = int32_t __attribute__((vector_size(64)));
  using U = uint32_t __attribute__((vector_size(64)));
  using Half = uint16_t __attribute__((vector_size(32)));
};
struct Avx512Bf16 : Vectors<Types> {
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmVectors = 4;

  static Half narrow(F values) { return reinterpret_cast<Half>(_mm512_cvtneps_pbh(values)); }
  using Vectors::store;
  static void store(F values, uint16_t* to) {
    const Half half = narrow(values);
    __builtin_memcpy(to, &half, sizeof(half));
  }
  static void store_pairs(F low, F high, Pair* to) {
    const U pairs =
        __builtin_convertvector(narrow(low), U) | __builtin_convertvector(narrow(high), U) << 16;
    __builtin_memcpy(to, &pairs, sizeof(pairs));
  }
};

}  // namespace

template <>
struct Step<Avx512Bf16, Pair> {
  using Row = __m512i;
  static Row load(const Pair* from) { return _mm512_loadu_si512(from); }
  static Types::F add(Types::F sum, Row row, Pair pair) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(row),
                            reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(pair))));
  }
};

namespace {

bool runs_here() { return __builtin_cpu_supports("avx512bf16"); }

}  // namespace

const HalfAttention kAvx512Bf16Attention = {runs_here, attend<Avx512Bf16, PairProducts<Avx512Bf16>>,
                                            attend_backward<Avx512Bf16, PairProducts<Avx512Bf16>>};

}  // namespace weft::nn::kernels

#endif
