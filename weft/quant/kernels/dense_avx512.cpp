#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/dense_loops.h"

namespace weft::quant::kernels {
namespace {

struct Avx512 {
  using F = float __attribute__((vector_size(64)));
  using U = uint32_t __attribute__((vector_size(64)));
  static constexpr int kTokens = 8, kStreams = 4;

  [[gnu::always_inline]] static F widen(const uint8_t* halves) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
  }

  using Table = __m512i;
  [[gnu::always_inline]] static Table table_of(const uint8_t* upper_bytes) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(upper_bytes)));
  }
  [[gnu::always_inline]] static void unpack(const uint8_t* from, Table table, U (&pairs)[4]) {
    const __m512i low = _mm512_set1_epi8(15), both = _mm512_loadu_si512(from + kShortNumbers);
    const __m512i first = _mm512_shuffle_epi8(table, _mm512_and_si512(both, low));
    const __m512i second =
        _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(both, 4), low));
    const __m512i left = _mm512_loadu_si512(from);
    const __m512i right = _mm512_loadu_si512(from + kShortNumbers / 2);
    pairs[0] = reinterpret_cast<U>(_mm512_unpacklo_epi8(left, first));
    pairs[1] = reinterpret_cast<U>(_mm512_unpackhi_epi8(left, first));
    pairs[2] = reinterpret_cast<U>(_mm512_unpacklo_epi8(right, second));
    pairs[3] = reinterpret_cast<U>(_mm512_unpackhi_epi8(right, second));
  }
};

}  // namespace

void multiply_dense_avx512(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                           const PanelOutputs& y) {
  multiply_dense<Avx512>(w, first, count, x, y);
}

void unpack_short_avx512(const Panels& w, int64_t panel, uint16_t* to) {
  unpack_short<Avx512>(w, panel, to);
}

}  // namespace weft::quant::kernels

#endif
