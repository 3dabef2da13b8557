#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/panel_kernel.h"
#include "weft/quant/kernels/panel_loops.h"

namespace weft::quant::kernels {
namespace {

bool runs_here() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

constexpr int kSteps = kBlockColumns / 4;
// A panel's rows fill two vectors.
constexpr int kHalves = 2;

__m256 widen_halves(const uint8_t* halves) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
}

__m256i load(const uint8_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

__m256i low_nibbles(__m256i bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
__m256i high_nibbles(__m256i bytes) { return low_nibbles(_mm256_srli_epi16(bytes, 4)); }

// Products of nibbles, pairs of columns added: a block's eight stay below 15 * 127 * 2 * 8, which
// 16 bits hold.
__m256i add_products(__m256i sums, __m256i nibbles, __m256i x) {
  return _mm256_add_epi16(sums, _mm256_maddubs_epi16(nibbles, x));
}

__m256i add_neighbours(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }

// Eight rows' products of one block with four columns of x at a time; `codes` are their bytes of
// the first step.
template <int kBits>
[[gnu::always_inline]] inline __m256 products(const uint8_t* codes, const __m256i* x) {
  __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
  if constexpr (kBits == 4) {
    for (int j = 0; j < kSteps / 2; ++j) {
      const __m256i both = load(codes + 4 * kPanelRows * j);
      low = add_products(low, low_nibbles(both), x[j]);
      high = add_products(high, high_nibbles(both), x[j + kSteps / 2]);
    }
    return _mm256_cvtepi32_ps(add_neighbours(_mm256_add_epi16(low, high)));
  } else {
    for (int j = 0; j < kSteps; ++j) {
      const __m256i both = load(codes + 4 * kPanelRows * j);
      low = add_products(low, low_nibbles(both), x[j]);
      high = add_products(high, high_nibbles(both), x[j]);
    }
    const __m256i sixteens = _mm256_slli_epi32(add_neighbours(high), 4);
    return _mm256_cvtepi32_ps(_mm256_add_epi32(add_neighbours(low), sixteens));
  }
}

// A block of one token, four columns for every row.
struct Columns {
  __m256i fours[kSteps];

  explicit Columns(const int8_t* codes) {
    for (int j = 0; j < kSteps; ++j) {
      int four;
      __builtin_memcpy(&four, codes + 4 * j, sizeof(four));
      fours[j] = _mm256_set1_epi32(four);
    }
  }
};

// One panel for one token: its first block is number `at`, the next ones each `stride` further.
template <int kBits, bool kIsSymmetric, bool kIs16>
void multiply_panel(const uint8_t* w, int64_t num_blocks, const RoundedInputs& x, int64_t at,
                    int64_t stride, float* y) {
  constexpr int64_t kBytes = kPanelRows * ((kIsSymmetric ? 2 : 4) + kBlockColumns * kBits / 8);
  constexpr int64_t kHalfRows = kPanelRows / kHalves;
  __m256 totals[kHalves] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (int64_t b = 0; b < num_blocks; ++b, w += kBytes, at += stride) {
    const Columns upper(x.codes + at * kBlockColumns);
    const Columns lower((kIs16 ? x.lower_codes : x.codes) + at * kBlockColumns);
    const uint8_t* codes = w + (kIsSymmetric ? 2 : 4) * kPanelRows;
    for (int half = 0; half < kHalves; ++half, codes += 4 * kHalfRows) {
      const __m256 scales = widen_halves(w + 2 * kHalfRows * half);
      const __m256 offsets =
          kIsSymmetric ? _mm256_mul_ps(scales, _mm256_set1_ps(kBits == 4 ? -8.0F : -128.0F))
                       : widen_halves(w + 2 * kPanelRows + 2 * kHalfRows * half);
      __m256 sum = products<kBits>(codes, upper.fours);
      if constexpr (kIs16) {
        sum = _mm256_fmadd_ps(sum, _mm256_set1_ps(kUpper), products<kBits>(codes, lower.fours));
      }
      const __m256 scale = _mm256_mul_ps(scales, _mm256_set1_ps(x.scales[at]));
      totals[half] = _mm256_fmadd_ps(sum, scale, totals[half]);
      totals[half] = _mm256_fmadd_ps(offsets, _mm256_set1_ps(x.sums[at]), totals[half]);
    }
  }
  for (int half = 0; half < kHalves; ++half) _mm256_storeu_ps(y + kHalfRows * half, totals[half]);
}

struct Avx2 {
  template <int kBits, bool kIsSymmetric, bool kIs16>
  static void multiply_tile(const uint8_t* w, int64_t num_blocks, const RoundedInputs& x,
                            int64_t first, const PanelOutputs& y) {
    const int64_t tokens = x.tile_tokens(first);
    for (int64_t t = 0; t < tokens; ++t) {
      multiply_panel<kBits, kIsSymmetric, kIs16>(w, num_blocks, x, first * num_blocks + t, tokens,
                                                 y.data + (first + t) * y.stride);
    }
  }
};

constexpr int kVectors = kBlockColumns / 8;

float largest(__m256 values) {
  __m128 most = _mm_max_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
  most = _mm_max_ps(most, _mm_movehl_ps(most, most));
  return _mm_cvtss_f32(_mm_max_ss(most, _mm_movehdup_ps(most)));
}

int sum_of(__m256i values) {
  __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1)));
}

// Packing works within halves of a vector, so runs of four come out in the order 0 2 4 6 1 3 5 7.
void store_codes(const __m256i* codes, int8_t* to) {
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]),
                                            _mm256_packs_epi32(codes[2], codes[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(packed, order));
}

// A block's codes and, with 16 bits, their lower parts.
void split_codes(const __m256i* codes, int8_t* upper, int8_t* lower) {
  if (lower == nullptr) return store_codes(codes, upper);
  __m256i high[kVectors], low[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    high[i] = _mm256_srai_epi32(_mm256_add_epi32(codes[i], _mm256_set1_epi32(kUpper / 2)), 7);
    low[i] = _mm256_sub_epi32(codes[i], _mm256_slli_epi32(high[i], 7));
  }
  store_codes(high, upper);
  store_codes(low, lower);
}

void round(const float* x, int64_t num_blocks, const RoundedToken& to) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  const float limit = to.lower_codes == nullptr ? kMostOf8 : kMostOf16;
  for (int64_t block = 0; block < num_blocks; ++block, x += kBlockColumns) {
    const int64_t at = block * to.stride, first = at * kBlockColumns;
    __m256 values[kVectors], largest_values = _mm256_setzero_ps();
    for (int i = 0; i < kVectors; ++i) {
      values[i] = _mm256_loadu_ps(x + 8 * i);
      largest_values = _mm256_max_ps(largest_values, _mm256_andnot_ps(sign, values[i]));
    }
    const float most = largest(largest_values);
    const __m256 inverse = _mm256_set1_ps(most > kLeast ? limit / most : 0);
    __m256i codes[kVectors], total = _mm256_setzero_si256();
    for (int i = 0; i < kVectors; ++i) {
      codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(values[i], inverse));
      total = _mm256_add_epi32(total, codes[i]);
    }
    split_codes(codes, to.codes + first,
                to.lower_codes == nullptr ? nullptr : to.lower_codes + first);
    to.scales[at] = most / limit;
    to.sums[at] = to.scales[at] * static_cast<float>(sum_of(total));
  }
}

}  // namespace

const PanelKernel kAvx2PanelKernel = {"avx2", runs_here, round, multiply_panels<Avx2>};

}  // namespace weft::quant::kernels

#endif
