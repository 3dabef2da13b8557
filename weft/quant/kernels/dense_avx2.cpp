#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/dense_loops.h"

namespace weft::quant::kernels {
namespace {

struct Avx2 {
  using F = float __attribute__((vector_size(32)));
  using U = uint32_t __attribute__((vector_size(32)));
  using Bytes = uint8_t __attribute__((vector_size(32)));
  static constexpr int kTokens = 2, kStreams = 2;

  [[gnu::always_inline]] static F widen(const uint8_t* halves) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
  }

  using Table = __m256i;
  [[gnu::always_inline]] static Table table_of(const uint8_t* upper_bytes) {
    return _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(upper_bytes)));
  }
  [[gnu::always_inline]] static __m256i load(const uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  [[gnu::always_inline]] static void unpack(const uint8_t* from, Table table, U (&pairs)[4]) {
    const __m256i low = _mm256_set1_epi8(15), both = load(from + kShortNumbers);
    const __m256i first = _mm256_shuffle_epi8(table, _mm256_and_si256(both, low));
    const __m256i second =
        _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(both, 4), low));
    const __m256i left = load(from), right = load(from + kShortNumbers / 2);
    pairs[0] = reinterpret_cast<U>(_mm256_unpacklo_epi8(left, first));
    pairs[1] = reinterpret_cast<U>(_mm256_unpackhi_epi8(left, first));
    pairs[2] = reinterpret_cast<U>(_mm256_unpacklo_epi8(right, second));
    pairs[3] = reinterpret_cast<U>(_mm256_unpackhi_epi8(right, second));
  }

  // Row `row` of each four rows.
  [[gnu::always_inline]] static U load_rows(const uint16_t* rows, int64_t stride, int64_t row) {
    return reinterpret_cast<U>(
        _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(rows + (4 + row) * stride),
                            reinterpret_cast<const __m128i*>(rows + row * stride)));
  }
  [[gnu::always_inline]] static U low_words(U a, U b) {
    return reinterpret_cast<U>(
        _mm256_unpacklo_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
  [[gnu::always_inline]] static U high_words(U a, U b) {
    return reinterpret_cast<U>(
        _mm256_unpackhi_epi32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
  [[gnu::always_inline]] static Bytes join_bytes(U a, U b) {
    return reinterpret_cast<Bytes>(
        _mm256_packus_epi16(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
  }
  [[gnu::always_inline]] static Bytes look_up(Table table, Bytes places) {
    return reinterpret_cast<Bytes>(_mm256_shuffle_epi8(table, reinterpret_cast<__m256i>(places)));
  }
  [[gnu::always_inline]] static bool has_upper_bit(Bytes bytes) {
    return _mm256_movemask_epi8(reinterpret_cast<__m256i>(bytes)) != 0;
  }
};

}  // namespace

void multiply_dense_avx2(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                         const PanelOutputs& y) {
  multiply_dense<Avx2>(w, first, count, x, y);
}

void unpack_short_avx2(const Panels& w, int64_t panel, uint16_t* to) {
  unpack_short<Avx2>(w, panel, to);
}

int64_t pack_short_avx2(const uint16_t* rows, int64_t stride, const ShortIndices& indices,
                        int64_t count, uint8_t* to) {
  return pack_short<Avx2>(rows, stride, indices, count, to);
}

}  // namespace weft::quant::kernels

#endif
