#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/dense_loops.h"

namespace weft::quant::kernels {
namespace {

struct Avx512 {
  using F = float __attribute__((vector_size(64)));
  using U = uint32_t __attribute__((vector_size(64)));
  using Bytes = uint8_t __attribute__((vector_size(64)));
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

  // Row `row` of each four rows.
  [[gnu::always_inline]] static U load_rows(const uint16_t* rows, int64_t stride, int64_t row) {
    const auto load = [&](int64_t four) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + (4 * four + row) * stride));
    };
    __m512i lanes = _mm512_castsi128_si512(load(0));
    lanes = _mm512_inserti32x4(lanes, load(1), 1);
    lanes = _mm512_inserti32x4(lanes, load(2), 2);
    return reinterpret_cast<U>(_mm512_inserti32x4(lanes, load(3), 3));
  }
  [[gnu::always_inline]] static U low_words(U a, U b) {
    return reinterpret_cast<U>(
        _mm512_unpacklo_epi32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
  }
  [[gnu::always_inline]] static U high_words(U a, U b) {
    return reinterpret_cast<U>(
        _mm512_unpackhi_epi32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
  }
  [[gnu::always_inline]] static Bytes join_bytes(U a, U b) {
    return reinterpret_cast<Bytes>(
        _mm512_packus_epi16(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
  }
  [[gnu::always_inline]] static Bytes look_up(Table table, Bytes places) {
    return reinterpret_cast<Bytes>(_mm512_shuffle_epi8(table, reinterpret_cast<__m512i>(places)));
  }
  [[gnu::always_inline]] static bool has_upper_bit(Bytes bytes) {
    return _mm512_movepi8_mask(reinterpret_cast<__m512i>(bytes)) != 0;
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

int64_t pack_short_avx512(const uint16_t* rows, int64_t stride, const ShortIndices& indices,
                          int64_t count, uint8_t* to) {
  return pack_short<Avx512>(rows, stride, indices, count, to);
}

}  // namespace weft::quant::kernels

#endif
