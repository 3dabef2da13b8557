#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/core/amx.h"
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

  /// Codes that are integers.
  struct Linear {
    F scale;
    F offset;
    static Linear make(float scale, float offset) {
      return {_mm512_set1_ps(scale), _mm512_set1_ps(offset)};
    }
    F of(__m512i codes) const { return _mm512_fmadd_ps(_mm512_cvtepi32_ps(codes), scale, offset); }
  };
  /// All sixteen values of a group, so that a permutation turns codes into values; it ignores all
  /// but the lowest four bits.
  struct Sixteen {
    F values;
    static Sixteen make(float scale, float offset) {
      const F codes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      return {_mm512_fmadd_ps(codes, _mm512_set1_ps(scale), _mm512_set1_ps(offset))};
    }
    F of(__m512i codes) const { return _mm512_permutexvar_ps(codes, values); }
  };
  struct E2m1 : Sixteen {
    static E2m1 make(float scale, float /*offset*/) {
      return {{_mm512_mul_ps(_mm512_loadu_ps(kE2m1Values), _mm512_set1_ps(scale))}};
    }
  };

  struct Bytes {
    using Table = Linear;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = 16;
    static Table table(float scale, float offset) { return Table::make(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      values[0] = table.of(sixteen_bytes(from));
    }
  };

  /// E4M3 is float16 with three bits less of exponent and seven less of mantissa: moved to its
  /// places, it is 2^8 times too small. Its NaN has to be put there.
  struct E4m3Bytes {
    using Table = F;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = 16;
    static Table table(float scale, float /*offset*/) { return _mm512_set1_ps(scale); }
    static void decode(const uint8_t* from, Table scale, F* values) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      const __m256i wide = _mm256_cvtepi8_epi16(bytes);
      const __m256i magnitude = _mm256_and_si256(wide, _mm256_set1_epi16(0x7F));
      const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7F));
      const __m256i moved =
          _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(~0x4000));
      const F small = _mm512_cvtph_ps(_mm256_mask_set1_epi16(moved, nan, 0x7FFF));
      values[0] = _mm512_mul_ps(_mm512_mul_ps(small, _mm512_set1_ps(256)), scale);
    }
  };

  /// Sixteen codes: each lane gets the two bytes that hold its code, then shifts.
  template <int kBits, class Values = Linear>
  struct Stream {
    using Table = Values;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = 2 * kBits;
    static Table table(float scale, float offset) { return Table::make(scale, offset); }
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
      values[0] = table.of(_mm512_cvtepu16_epi32(codes));
    }
  };

  /// Sixteen codes of four bits: eight lanes share a 32-bit word.
  struct E2m1Stream {
    using Table = E2m1;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = 8;
    static Table table(float scale, float offset) { return Table::make(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      const __m512i bytes =
          _mm512_castsi128_si512(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
      const __m512i word = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
      const __m512i shifts =
          _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
      values[0] = table.of(_mm512_srlv_epi32(_mm512_permutexvar_epi32(word, bytes), shifts));
    }
  };

  template <class Values>
  struct NibblesOf {
    using Table = Values;
    static constexpr int kVectors = 2;
    static constexpr int kBytes = 16;
    static Table table(float scale, float offset) { return Table::make(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      const __m512i pairs = sixteen_bytes(from);
      values[0] = table.of(pairs);
      values[1] = table.of(_mm512_srli_epi32(pairs, 4));
    }
  };
  using Nibbles = NibblesOf<Sixteen>;
  using E2m1Nibbles = NibblesOf<E2m1>;
};

bool runs_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("f16c");
}

bool runs_with_tiles() { return core::has_amx() && runs_here(); }

consteval Kernel with_tiles(Kernel kernel) {
  kernel.uses_tiles = true;
  return kernel;
}

}  // namespace

constinit const Kernel kAmxKernel = with_tiles(make_kernel<Avx512>("amx", runs_with_tiles));
constinit const Kernel kAvx512Kernel = make_kernel<Avx512>("avx512", runs_here);

}  // namespace weft::quant::kernels

#endif
