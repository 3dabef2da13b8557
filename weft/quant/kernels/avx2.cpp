#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/row_loops.h"

namespace weft::quant::kernels {
namespace {

struct Avx2 {
  using F = __m256;
  static constexpr int kWidth = 8;
  static constexpr int kTokens = 2;
  static constexpr int kFusedTokens = 4;
  static constexpr int kTileRows = 4;
  static constexpr int kTileTokens = 3;

  static F zero() { return _mm256_setzero_ps(); }
  static F load(const float* from) { return _mm256_loadu_ps(from); }
  static void store(F values, float* to) { _mm256_storeu_ps(to, values); }
  static F fma(F a, F b, F sum) { return _mm256_fmadd_ps(a, b, sum); }
  static __m128 fold(F a) {
    return _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  }
  static float sum(F a) {
    const __m128 four = fold(a);
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static void sum4(F a, F b, F c, F d, float* sums) {
    const F pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(sums, fold(pairs));
  }
  static void widen_half(const uint16_t* half, int64_t count, float* wide) {
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
      const auto* from = reinterpret_cast<const __m128i*>(half + i);
      _mm256_storeu_ps(wide + i, _mm256_cvtph_ps(_mm_loadu_si128(from)));
    }
    for (; i < count; ++i) wide[i] = _cvtsh_ss(half[i]);
  }

  struct Table {
    F scale;
    F offset;
  };
  static Table make_table(float scale, float offset) {
    return {_mm256_set1_ps(scale), _mm256_set1_ps(offset)};
  }
  static F value(__m256i codes, const Table& table) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(codes), table.scale, table.offset);
  }
  static __m256i eight_bytes(const uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }

  struct Bytes {
    using Table = Avx2::Table;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = 8;
    static Table table(float scale, float offset) { return make_table(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      values[0] = value(eight_bytes(from), table);
    }
  };

  /// Eight codes: the first four shifted out of one 32-bit word, the others of a second.
  template <int kBits>
  struct Stream {
    using Table = Avx2::Table;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = kBits;
    static Table table(float scale, float offset) { return make_table(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      const uint64_t eight = load_eight_codes<Avx2, kBits>(from);
      const __m128i low = _mm_set1_epi32(static_cast<int>(eight));
      const __m128i high = _mm_set1_epi32(static_cast<int>(eight >> (4 * kBits)));
      const __m256i shifts =
          _mm256_setr_epi32(0, kBits, 2 * kBits, 3 * kBits, 0, kBits, 2 * kBits, 3 * kBits);
      const __m256i shifted = _mm256_srlv_epi32(_mm256_set_m128i(high, low), shifts);
      values[0] = value(_mm256_and_si256(shifted, _mm256_set1_epi32((1 << kBits) - 1)), table);
    }
  };

  struct Nibbles {
    using Table = Avx2::Table;
    static constexpr int kVectors = 2;
    static constexpr int kBytes = 8;
    static Table table(float scale, float offset) { return make_table(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      const __m256i pairs = eight_bytes(from);
      values[0] = value(_mm256_and_si256(pairs, _mm256_set1_epi32(15)), table);
      values[1] = value(_mm256_srli_epi32(pairs, 4), table);
    }
  };
};

bool runs_here() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

}  // namespace

constinit const Kernel kAvx2Kernel = make_kernel<Avx2>("avx2", runs_here);

}  // namespace weft::quant::kernels

#endif
