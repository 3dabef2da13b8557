#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/dense_loops.h"

namespace weft::quant::kernels {
namespace {

struct Avx512 {
  using F = float __attribute__((vector_size(64)));
  using U = uint32_t __attribute__((vector_size(64)));
  static constexpr int kTokens = 8;

  [[gnu::always_inline]] static F widen(const uint8_t* halves) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
  }
};

}  // namespace

void multiply_dense_avx512(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                           const PanelOutputs& y) {
  multiply_dense<Avx512>(w, first, count, x, y);
}

}  // namespace weft::quant::kernels

#endif
