#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/dense_loops.h"

namespace weft::quant::kernels {
namespace {

struct Avx2 {
  using F = float __attribute__((vector_size(32)));
  using U = uint32_t __attribute__((vector_size(32)));
  static constexpr int kTokens = 2;

  [[gnu::always_inline]] static F widen(const uint8_t* halves) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
  }
};

}  // namespace

void multiply_dense_avx2(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                         const PanelOutputs& y) {
  multiply_dense<Avx2>(w, first, count, x, y);
}

}  // namespace weft::quant::kernels

#endif
