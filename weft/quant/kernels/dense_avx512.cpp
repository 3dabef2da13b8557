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

  // Row `row` of each four rows.
  [[gnu::always_inline]] static __m512i load_rows(const uint16_t* rows, int64_t stride,
                                                  int64_t row) {
    const auto load = [&](int64_t four) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + (4 * four + row) * stride));
    };
    __m512i lanes = _mm512_castsi128_si512(load(0));
    lanes = _mm512_inserti32x4(lanes, load(1), 1);
    lanes = _mm512_inserti32x4(lanes, load(2), 2);
    return _mm512_inserti32x4(lanes, load(3), 3);
  }
  [[gnu::always_inline]] static void load_pairs(const uint16_t* rows, int64_t stride,
                                                U (&pairs)[4]) {
    const __m512i a = load_rows(rows, stride, 0), b = load_rows(rows, stride, 1);
    const __m512i c = load_rows(rows, stride, 2), d = load_rows(rows, stride, 3);
    const __m512i ab = _mm512_unpacklo_epi32(a, b), cd = _mm512_unpacklo_epi32(c, d);
    pairs[0] = reinterpret_cast<U>(_mm512_unpacklo_epi64(ab, cd));
    pairs[1] = reinterpret_cast<U>(_mm512_unpackhi_epi64(ab, cd));
    const __m512i right_ab = _mm512_unpackhi_epi32(a, b), right_cd = _mm512_unpackhi_epi32(c, d);
    pairs[2] = reinterpret_cast<U>(_mm512_unpacklo_epi64(right_ab, right_cd));
    pairs[3] = reinterpret_cast<U>(_mm512_unpackhi_epi64(right_ab, right_cd));
  }
  // The indices of two pairs' upper bytes.
  [[gnu::always_inline]] static __m512i find(U first, U second, const ShortIndices& indices) {
    const __m512i bytes =
        _mm512_packus_epi16(_mm512_srli_epi16(reinterpret_cast<__m512i>(first), 8),
                            _mm512_srli_epi16(reinterpret_cast<__m512i>(second), 8));
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i upper = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), low);
    const __m512i lower = _mm512_and_si512(bytes, low);
    __m512i found = _mm512_set1_epi8(static_cast<char>(ShortIndices::kNone));
    for (int64_t i = 0; i < indices.num_halves; ++i) {
      const uint8_t half = indices.upper_halves[i];
      const __mmask64 here =
          _mm512_cmpeq_epi8_mask(upper, _mm512_set1_epi8(static_cast<char>(half)));
      found = _mm512_mask_shuffle_epi8(found, here, table_of(indices.by_halves[half]), lower);
    }
    return found;
  }
  [[gnu::always_inline]] static bool pack(const U (&pairs)[4], const ShortIndices& indices,
                                          uint8_t* to) {
    const __m512i first = find(pairs[0], pairs[1], indices);
    const __m512i second = find(pairs[2], pairs[3], indices);
    const auto lower_bytes = [](U left, U right) {
      const __m512i low = _mm512_set1_epi16(255);
      return _mm512_packus_epi16(_mm512_and_si512(reinterpret_cast<__m512i>(left), low),
                                 _mm512_and_si512(reinterpret_cast<__m512i>(right), low));
    };
    _mm512_storeu_si512(to, lower_bytes(pairs[0], pairs[1]));
    _mm512_storeu_si512(to + kShortNumbers / 2, lower_bytes(pairs[2], pairs[3]));
    _mm512_storeu_si512(to + kShortNumbers, _mm512_or_si512(first, _mm512_slli_epi16(second, 4)));
    return _mm512_movepi8_mask(_mm512_or_si512(first, second)) == 0;
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
