#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/dense_loops.h"

namespace weft::quant::kernels {
namespace {

struct Avx2 {
  using F = float __attribute__((vector_size(32)));
  using U = uint32_t __attribute__((vector_size(32)));
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

  [[gnu::always_inline]] static void store(uint8_t* to, __m256i bytes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bytes);
  }
  // Row `row` of each four rows.
  [[gnu::always_inline]] static __m256i load_rows(const uint16_t* rows, int64_t stride,
                                                  int64_t row) {
    return _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(rows + (4 + row) * stride),
                               reinterpret_cast<const __m128i*>(rows + row * stride));
  }
  [[gnu::always_inline]] static void load_pairs(const uint16_t* rows, int64_t stride,
                                                U (&pairs)[4]) {
    const __m256i a = load_rows(rows, stride, 0), b = load_rows(rows, stride, 1);
    const __m256i c = load_rows(rows, stride, 2), d = load_rows(rows, stride, 3);
    const __m256i ab = _mm256_unpacklo_epi32(a, b), cd = _mm256_unpacklo_epi32(c, d);
    pairs[0] = reinterpret_cast<U>(_mm256_unpacklo_epi64(ab, cd));
    pairs[1] = reinterpret_cast<U>(_mm256_unpackhi_epi64(ab, cd));
    const __m256i right_ab = _mm256_unpackhi_epi32(a, b), right_cd = _mm256_unpackhi_epi32(c, d);
    pairs[2] = reinterpret_cast<U>(_mm256_unpacklo_epi64(right_ab, right_cd));
    pairs[3] = reinterpret_cast<U>(_mm256_unpackhi_epi64(right_ab, right_cd));
  }
  // The indices of two pairs' upper bytes.
  [[gnu::always_inline]] static __m256i find(U first, U second, const ShortIndices& indices) {
    const __m256i bytes =
        _mm256_packus_epi16(_mm256_srli_epi16(reinterpret_cast<__m256i>(first), 8),
                            _mm256_srli_epi16(reinterpret_cast<__m256i>(second), 8));
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low);
    const __m256i lower = _mm256_and_si256(bytes, low);
    __m256i found = _mm256_set1_epi8(static_cast<char>(ShortIndices::kNone));
    for (int64_t i = 0; i < indices.num_halves; ++i) {
      const uint8_t half = indices.upper_halves[i];
      const __m256i here = _mm256_cmpeq_epi8(upper, _mm256_set1_epi8(static_cast<char>(half)));
      const __m256i own = _mm256_shuffle_epi8(table_of(indices.by_halves[half]), lower);
      found = _mm256_blendv_epi8(found, own, here);
    }
    return found;
  }
  [[gnu::always_inline]] static bool pack(const U (&pairs)[4], const ShortIndices& indices,
                                          uint8_t* to) {
    const __m256i first = find(pairs[0], pairs[1], indices);
    const __m256i second = find(pairs[2], pairs[3], indices);
    const auto lower_bytes = [](U left, U right) {
      const __m256i low = _mm256_set1_epi16(255);
      return _mm256_packus_epi16(_mm256_and_si256(reinterpret_cast<__m256i>(left), low),
                                 _mm256_and_si256(reinterpret_cast<__m256i>(right), low));
    };
    store(to, lower_bytes(pairs[0], pairs[1]));
    store(to + kShortNumbers / 2, lower_bytes(pairs[2], pairs[3]));
    store(to + kShortNumbers, _mm256_or_si256(first, _mm256_slli_epi16(second, 4)));
    return _mm256_movemask_epi8(_mm256_or_si256(first, second)) == 0;
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
