#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

#include "weft/nn/kernels/attention_loops.h"
#include "weft/nn/kernels/cached_attention.h"
#include "weft/nn/kernels/delta_loops.h"
#include "weft/nn/kernels/row_loops.h"

namespace weft::nn::kernels {
namespace {

struct Types {
  using F = float __attribute__((vector_size(32)));
  using I = int32_t __attribute__((vector_size(32)));
  using U = uint32_t __attribute__((vector_size(32)));
  using Half = uint16_t __attribute__((vector_size(16)));
  using Bytes = int8_t __attribute__((vector_size(8)));
};
struct Avx2 : Vectors<Types> {
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmVectors = 2;

  using Vectors::load;
  using Vectors::store;
  [[gnu::always_inline]] static F load(const Float16* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  [[gnu::always_inline]] static void store(F values, Float16* to) {
    const F above = values > kMostFloat16 ? all(kMostFloat16) : values;
    const F most = above < -kMostFloat16 ? all(-kMostFloat16) : above;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm256_cvtps_ph(most, _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static F load(const int8_t* from) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
};

// clang 14's __builtin_cpu_supports does not know it.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool runs_here() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

}  // namespace

const Kernel kAvx2Kernel = {"avx2",
                            runs_here,
                            attend<Avx2>,
                            attend_backward<Avx2>,
                            rotate<Avx2>,
                            delta<Avx2>,
                            convolve<Avx2>,
                            element_kernel<Avx2, float>(),
                            element_kernel<Avx2, uint16_t>(),
                            cache_kernel<Avx2, float>(),
                            cache_kernel<Avx2, Float16>(),
                            cache_kernel<Avx2, ByteBlock>()};

}  // namespace weft::nn::kernels

#endif
