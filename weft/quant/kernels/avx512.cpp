#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/row_loops.h"

namespace weft::quant::kernels {
namespace {

struct Avx512 {
  using F = __m512;
  static constexpr int kWidth = 16;
  static constexpr int kTokens = 4;
  static constexpr int kFusedTokens = 8;
  static constexpr int kTileRows = 4;
  static constexpr int kTileTokens = 6;

  static F zero() { return _mm512_setzero_ps(); }
  static F load(const float* from) { return _mm512_loadu_ps(from); }
  static void store(F values, float* to) { _mm512_storeu_ps(to, values); }
  static F fma(F a, F b, F sum) { return _mm512_fmadd_ps(a, b, sum); }
  static __m256 fold(F a) {
    return _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  }
  static float sum(F a) {
    const __m256 eight = fold(a);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static void sum4(F a, F b, F c, F d, float* sums) {
    const __m256 pairs =
        _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
    _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
  }
  static void widen_half(const uint16_t* half, int64_t count, float* wide) {
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      const auto* from = reinterpret_cast<const __m256i*>(half + i);
      _mm512_storeu_ps(wide + i, _mm512_cvtph_ps(_mm256_loadu_si256(from)));
    }
    for (; i < count; ++i) wide[i] = _cvtsh_ss(half[i]);
  }
  static __m512i sixteen_bytes(const uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  struct Linear {
    F scale;
    F offset;
  };
  static Linear make_linear(float scale, float offset) {
    return {_mm512_set1_ps(scale), _mm512_set1_ps(offset)};
  }
  static F value(__m512i codes, const Linear& table) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(codes), table.scale, table.offset);
  }

  struct Bytes {
    using Table = Linear;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = 16;
    static Table table(float scale, float offset) { return make_linear(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      values[0] = value(sixteen_bytes(from), table);
    }
  };

  /// Sixteen codes: each lane gets the two bytes that hold its code, then shifts.
  template <int kBits>
  struct Stream {
    using Table = Linear;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = 2 * kBits;
    static Table table(float scale, float offset) { return make_linear(scale, offset); }
    /// The two bytes of a lane; the masked load makes bytes beyond the last zero.
    static constexpr int byte_of(int lane) {
      const int first = lane * kBits / 8;
      return first | (first + 1) << 8;
    }
    static constexpr int pair(int lane) { return byte_of(lane) | byte_of(lane + 1) << 16; }
    static constexpr int shift(int lane) {
      return lane * kBits % 8 | ((lane + 1) * kBits % 8) << 16;
    }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      const __m128i bytes = _mm_maskz_loadu_epi8(static_cast<__mmask16>((1U << kBytes) - 1), from);
      const __m256i places = _mm256_setr_epi32(pair(0), pair(2), pair(4), pair(6), pair(8),
                                               pair(10), pair(12), pair(14));
      const __m256i shifts = _mm256_setr_epi32(shift(0), shift(2), shift(4), shift(6), shift(8),
                                               shift(10), shift(12), shift(14));
      const __m256i words = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), places);
      const __m256i codes =
          _mm256_and_si256(_mm256_srlv_epi16(words, shifts), _mm256_set1_epi16((1 << kBits) - 1));
      values[0] = value(_mm512_cvtepu16_epi32(codes), table);
    }
  };

  /// The table holds all sixteen values of a group, so that a permutation turns codes into values.
  struct Nibbles {
    using Table = F;
    static constexpr int kVectors = 2;
    static constexpr int kBytes = 16;
    static Table table(float scale, float offset) {
      const F codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      return _mm512_fmadd_ps(codes, _mm512_set1_ps(scale), _mm512_set1_ps(offset));
    }
    static void decode(const uint8_t* from, Table table, F* values) {
      const __m512i pairs = sixteen_bytes(from);
      values[0] = _mm512_permutexvar_ps(pairs, table);
      values[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(pairs, 4), table);
    }
  };
};

bool runs_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("f16c");
}

}  // namespace

constinit const Kernel kAvx512Kernel = make_kernel<Avx512>("avx512", runs_here);

}  // namespace weft::quant::kernels

#endif
