#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/nn/kernels/attention_loops.h"
#include "weft/nn/kernels/cached_attention.h"
#include "weft/nn/kernels/delta_loops.h"
#include "weft/nn/kernels/row_loops.h"

namespace weft::nn::kernels {
namespace {

struct Types {
  using F = float __attribute__((vector_size(64)));
  using I = int32_t __attribute__((vector_size(64)));
  using U = uint32_t __attribute__((vector_size(64)));
  using Half = uint16_t __attribute__((vector_size(32)));
  using Bytes = int8_t __attribute__((vector_size(16)));
};
struct Avx512 : Vectors<Types> {
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmVectors = 4;

  using Vectors::load;
  using Vectors::store;
  [[gnu::always_inline]] static F load(const Float16* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  [[gnu::always_inline]] static void store(F values, Float16* to) {
    const F above = values > kMostFloat16 ? all(kMostFloat16) : values;
    const F most = above < -kMostFloat16 ? all(-kMostFloat16) : above;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtps_ph(most, _MM_FROUND_TO_NEAREST_INT));
  }
  [[gnu::always_inline]] static F load(const int8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
};

bool runs_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

const Kernel kAvx512Kernel = {"avx512",
                              runs_here,
                              attend<Avx512>,
                              attend_backward<Avx512>,
                              rotate<Avx512>,
                              delta<Avx512>,
                              convolve<Avx512>,
                              element_kernel<Avx512, float>(),
                              element_kernel<Avx512, uint16_t>(),
                              cache_kernel<Avx512, float>(),
                              cache_kernel<Avx512, Float16>(),
                              cache_kernel<Avx512, ByteBlock>()};

}  // namespace weft::nn::kernels

#endif
