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

  static __m256i eight_bytes(const uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }

  /// Codes that are integers.
  struct Linear {
    F scale;
    F offset;
    static Linear make(float scale, float offset) {
      return {_mm256_set1_ps(scale), _mm256_set1_ps(offset)};
    }
    F of(__m256i codes) const { return _mm256_fmadd_ps(_mm256_cvtepi32_ps(codes), scale, offset); }
  };
  /// A permutation looks up the eight magnitudes; the fourth bit becomes the sign.
  struct E2m1 {
    F values;
    static E2m1 make(float scale, float /*offset*/) {
      return {_mm256_mul_ps(_mm256_loadu_ps(kE2m1Values), _mm256_set1_ps(scale))};
    }
    F of(__m256i codes) const {
      const __m256i sign = _mm256_set1_epi32(static_cast<int>(0x80000000));
      const F signs = _mm256_castsi256_ps(_mm256_and_si256(_mm256_slli_epi32(codes, 28), sign));
      return _mm256_xor_ps(_mm256_permutevar8x32_ps(values, codes), signs);
    }
  };

  struct Bytes {
    using Table = Linear;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = 8;
    static Table table(float scale, float offset) { return Table::make(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      values[0] = table.of(eight_bytes(from));
    }
  };

  /// E4M3 is float16 with three bits less of exponent and seven less of mantissa: moved to its
  /// places, it is 2^8 times too small. Its NaN has to be put there.
  struct E4m3Bytes {
    using Table = F;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = 8;
    static Table table(float scale, float /*offset*/) { return _mm256_set1_ps(scale); }
    static void decode(const uint8_t* from, Table scale, F* values) {
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
      const __m128i wide = _mm_cvtepi8_epi16(bytes);
      const __m128i magnitude = _mm_and_si128(wide, _mm_set1_epi16(0x7F));
      const __m128i nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7F));
      const __m128i moved = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(~0x4000));
      const F small = _mm256_cvtph_ps(_mm_or_si128(moved, nan));
      values[0] = _mm256_mul_ps(_mm256_mul_ps(small, _mm256_set1_ps(256)), scale);
    }
  };

  /// Eight codes: the first four shifted out of one 32-bit word, the others of a second.
  template <int kBits, class Values = Linear>
  struct Stream {
    using Table = Values;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = kBits;
    static Table table(float scale, float offset) { return Table::make(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      const uint64_t eight = load_eight_codes<Avx2, kBits>(from);
      const __m128i low = _mm_set1_epi32(static_cast<int>(eight));
      const __m128i high = _mm_set1_epi32(static_cast<int>(eight >> (4 * kBits)));
      const __m256i shifts =
          _mm256_setr_epi32(0, kBits, 2 * kBits, 3 * kBits, 0, kBits, 2 * kBits, 3 * kBits);
      const __m256i shifted = _mm256_srlv_epi32(_mm256_set_m128i(high, low), shifts);
      values[0] = table.of(_mm256_and_si256(shifted, _mm256_set1_epi32((1 << kBits) - 1)));
    }
  };
  using E2m1Stream = Stream<4, E2m1>;

  template <class Values>
  struct NibblesOf {
    using Table = Values;
    static constexpr int kVectors = 2;
    static constexpr int kBytes = 8;
    static Table table(float scale, float offset) { return Table::make(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      const __m256i pairs = eight_bytes(from);
      values[0] = table.of(_mm256_and_si256(pairs, _mm256_set1_epi32(15)));
      values[1] = table.of(_mm256_srli_epi32(pairs, 4));
    }
  };
  using Nibbles = NibblesOf<Linear>;
  using E2m1Nibbles = NibblesOf<E2m1>;
};

bool runs_here() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

}  // namespace

constinit const Kernel kAvx2Kernel = make_kernel<Avx2>("avx2", runs_here);

}  // namespace weft::quant::kernels

#endif
