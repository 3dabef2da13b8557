#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/panel_kernel.h"
#include "weft/quant/kernels/panel_loops.h"
#include "weft/quant/kernels/streams.h"

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

// Four steps of codes of 6 bits out of three vectors.
[[gnu::always_inline]] inline void load_sixes(const uint8_t* from, __m256i* steps) {
  const __m256i a = load(from), b = load(from + 4 * kPanelRows), c = load(from + 8 * kPanelRows);
  const __m256i six = _mm256_set1_epi8(63);
  steps[0] = _mm256_and_si256(a, six);
  steps[1] = _mm256_and_si256(b, six);
  steps[2] = _mm256_and_si256(c, six);
  const __m256i low = _mm256_and_si256(_mm256_srli_epi16(a, 6), _mm256_set1_epi8(3));
  const __m256i middle = _mm256_and_si256(_mm256_srli_epi16(b, 4), _mm256_set1_epi8(12));
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(c, 2), _mm256_set1_epi8(48));
  steps[3] = _mm256_or_si256(_mm256_or_si256(low, middle), high);
}

__m256i add_neighbours(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }

// Products of codes of 6 bits, four neighbouring columns added: two steps' pairs stay below
// 63 * 127 * 2 * 2, which 16 bits hold.
[[gnu::always_inline]] inline __m256i six_products(const uint8_t* codes, const __m256i* x) {
  constexpr int kFours = 4;
  __m256i steps[kFours];
  load_sixes(codes, steps);
  const __m256i first = add_products(_mm256_maddubs_epi16(steps[0], x[0]), steps[1], x[1]);
  const __m256i second = add_products(_mm256_maddubs_epi16(steps[2], x[2]), steps[3], x[3]);
  return _mm256_add_epi32(add_neighbours(first), add_neighbours(second));
}

// What codes are read with: of kTable4, the low and the high half of the code of each index.
struct CodeTable {
  __m256i low = _mm256_setzero_si256(), high = low;

  explicit CodeTable(const uint8_t* table) {
    if (table == nullptr) return;
    const __m256i codes =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    low = low_nibbles(codes);
    high = high_nibbles(codes);
  }
};

// Sums of products with the low and with the high half of codes of 8 bits.
struct HalfSums {
  __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();

  [[gnu::always_inline]] void add(__m256i low_codes, __m256i high_codes, __m256i x) {
    low = add_products(low, low_codes, x);
    high = add_products(high, high_codes, x);
  }
  [[gnu::always_inline]] __m256 total() const {
    const __m256i sixteens = _mm256_slli_epi32(add_neighbours(high), 4);
    return _mm256_cvtepi32_ps(_mm256_add_epi32(add_neighbours(low), sixteens));
  }
};

// Nibbles of step `step`.
[[gnu::always_inline]] inline __m256i nibbles_of(const uint8_t* codes, int step) {
  const __m256i both = load(codes + 4 * kPanelRows * (step % (kSteps / 2)));
  return step < kSteps / 2 ? low_nibbles(both) : high_nibbles(both);
}

// Eight rows' products of steps [kFirst, kFirst + kCount) with four columns of x at a time; `codes`
// are their bytes of the block's first step.
template <PanelNumbers kNumbers, int kFirst, int kCount>
[[gnu::always_inline]] inline __m256 products(const uint8_t* codes, const CodeTable& table,
                                              const __m256i* x) {
  if constexpr (kNumbers == PanelNumbers::kCodes4) {
    __m256i sums = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int j = kFirst; j < kFirst + kCount; ++j) {
      sums = add_products(sums, nibbles_of(codes, j), x[j]);
    }
    return _mm256_cvtepi32_ps(add_neighbours(sums));
  } else if constexpr (kNumbers == PanelNumbers::kCodes6) {
    __m256i sums = _mm256_setzero_si256();
    for (int j = kFirst; j < kFirst + kCount; j += 4) {
      sums = _mm256_add_epi32(sums, six_products(codes + 3 * kPanelRows * j, x + j));
    }
    return _mm256_cvtepi32_ps(sums);
  } else {
    HalfSums sums;
#pragma GCC unroll 8
    for (int j = kFirst; j < kFirst + kCount; ++j) {
      if constexpr (kNumbers == PanelNumbers::kTable4) {
        const __m256i indices = nibbles_of(codes, j);
        sums.add(_mm256_shuffle_epi8(table.low, indices), _mm256_shuffle_epi8(table.high, indices),
                 x[j]);
      } else {
        const __m256i both = load(codes + 4 * kPanelRows * j);
        sums.add(low_nibbles(both), high_nibbles(both), x[j]);
      }
    }
    return sums.total();
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

// One token's block: `upper` alone with 8 bits.
struct TokenBlock {
  Columns upper, lower;
  float scale;
  const float* sums;
};

template <bool kIs16>
TokenBlock token_block(const RoundedInputs& x, int64_t at) {
  return {Columns(x.codes + at * kBlockColumns),
          Columns((kIs16 ? x.lower_codes : x.codes) + at * kBlockColumns), x.scales[at],
          x.sums + 2 * at};
}

__m256 widen_bytes(const uint8_t* bytes) {
  const __m128i codes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
}

template <bool kIsShared>
[[gnu::always_inline]] inline __m256 load_scales(const PanelForm& form, const uint8_t* from,
                                                 const float* shared) {
  if constexpr (kIsShared) return _mm256_mul_ps(widen_bytes(from), _mm256_loadu_ps(shared));
  return form.scales == PanelScales::kFloat32
             ? _mm256_loadu_ps(reinterpret_cast<const float*>(from))
             : widen_halves(from);
}

// A block, and what it and its neighbours share; both of the first of eight rows.
struct BlockPlace {
  const uint8_t* scales;
  const uint8_t* codes;
  const float* shared;
  const CodeTable& table;
};

// Eight rows' scales and offsets of one group.
struct Scales {
  __m256 scales, offsets;
};

template <bool kIsShared>
[[gnu::always_inline]] inline Scales scales_of(const PanelForm& form, const BlockPlace& w,
                                               int64_t group) {
  const uint8_t* from = w.scales + group * (form.header_bytes() / form.groups);
  const __m256 scales = load_scales<kIsShared>(form, from, w.shared);
  if (!form.has_offsets) return {scales, _mm256_mul_ps(scales, _mm256_set1_ps(-form.zero))};
  return {scales, load_scales<kIsShared>(form, from + form.scale_bytes(), w.shared + kPanelRows)};
}

// total += steps [kFirst, kFirst + kCount), which have one scale; `sum` is that of their codes.
template <PanelNumbers kNumbers, int kFirst, int kCount, bool kIs16>
[[gnu::always_inline]] inline __m256 add_steps(const BlockPlace& w, const TokenBlock& x, float sum,
                                               const Scales& numbers, __m256 total) {
  __m256 product = products<kNumbers, kFirst, kCount>(w.codes, w.table, x.upper.fours);
  if constexpr (kIs16) {
    product = _mm256_fmadd_ps(product, _mm256_set1_ps(kUpper),
                              products<kNumbers, kFirst, kCount>(w.codes, w.table, x.lower.fours));
  }
  total = _mm256_fmadd_ps(product, _mm256_mul_ps(numbers.scales, _mm256_set1_ps(x.scale)), total);
  return _mm256_fmadd_ps(numbers.offsets, _mm256_set1_ps(sum), total);
}

// total += a block's eight rows.
template <PanelNumbers kNumbers, int kGroups, bool kIs16, bool kIsShared>
[[gnu::always_inline]] inline __m256 add_half(const PanelForm& form, const BlockPlace& w,
                                              const TokenBlock& x, __m256 total) {
  if constexpr (kGroups == 1) {
    return add_steps<kNumbers, 0, kSteps, kIs16>(w, x, x.sums[0], scales_of<kIsShared>(form, w, 0),
                                                 total);
  } else {
    total = add_steps<kNumbers, 0, kSteps / 2, kIs16>(w, x, x.sums[0] - x.sums[1],
                                                      scales_of<kIsShared>(form, w, 0), total);
    return add_steps<kNumbers, kSteps / 2, kSteps / 2, kIs16>(
        w, x, x.sums[1], scales_of<kIsShared>(form, w, 1), total);
  }
}

// kPanels panels for one token: its row's first block is number `at`, the next ones each `stride`
// further.
template <PanelNumbers kNumbers, int kGroups, bool kIs16, bool kIsShared, int kPanels>
void multiply_run_of(const Panels& w, const PanelRun& run, const RoundedInputs& x, int64_t at,
                     int64_t stride, float* y) {
  const PanelForm form = w.form;
  constexpr int64_t kHalfRows = kPanelRows / kHalves;
  const CodeTable table(kNumbers == PanelNumbers::kTable4 ? form.table : nullptr);
  const int64_t first = w.first_block, end = first + w.num_blocks;
  const uint8_t* blocks = run.panel + w.shared_bytes() + first * form.block_bytes();
  at += first * stride;
  __m256 totals[kPanels][kHalves] = {};
  for (int64_t b = first; b < end; ++b, blocks += form.block_bytes(), at += stride) {
    const auto* const shared =
        reinterpret_cast<const float*>(run.panel) + b / kSharedBlocks * form.shared_numbers();
    const TokenBlock token = token_block<kIs16>(x, at);
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* const own = blocks + p * run.apart;
      if (stride == 1) fetch_ahead<kPanels>(own, form.block_bytes());
      for (int half = 0; half < kHalves; ++half) {
        const BlockPlace place{own + half * form.scale_bytes() / kHalves,
                               own + form.header_bytes() + 4 * kHalfRows * half,
                               shared + p * run.apart / 4 + kHalfRows * half, table};
        totals[p][half] =
            add_half<kNumbers, kGroups, kIs16, kIsShared>(form, place, token, totals[p][half]);
      }
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    for (int half = 0; half < kHalves; ++half) {
      _mm256_storeu_ps(y + p * run.rows_apart + kHalfRows * half, totals[p][half]);
    }
  }
}

struct Avx2 {
  template <PanelNumbers kNumbers, int kGroups, bool kIs16, bool kIsShared>
  static void multiply_tile(const Panels& w, const uint8_t* panel, const RoundedInputs& x,
                            int64_t first, const PanelOutputs& y) {
    const int64_t tokens = x.tile_tokens(first);
    for (int64_t t = 0; t < tokens; ++t) {
      multiply_run_of<kNumbers, kGroups, kIs16, kIsShared, 1>(
          w, {panel}, x, first * w.blocks_of_row() + t, tokens, y.data + (first + t) * y.stride);
    }
  }

  template <PanelNumbers kNumbers, int kGroups, bool kIs16, bool kIsShared, int kPanels>
  static void multiply_run(const Panels& w, const PanelRun& run, const RoundedInputs& x,
                           const PanelOutputs& y) {
    multiply_run_of<kNumbers, kGroups, kIs16, kIsShared, kPanels>(w, run, x, 0, 1, y.data);
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
    __m256i codes[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(values[i], inverse));
    }
    split_codes(codes, to.codes + first,
                to.lower_codes == nullptr ? nullptr : to.lower_codes + first);
    to.scales[at] = most / limit;
    const int second = sum_of(_mm256_add_epi32(codes[2], codes[3]));
    const int total = sum_of(_mm256_add_epi32(codes[0], codes[1])) + second;
    to.sums[2 * at] = to.scales[at] * static_cast<float>(total);
    to.sums[2 * at + 1] = to.scales[at] * static_cast<float>(second);
  }
}

}  // namespace

const PanelKernel kAvx2PanelKernel = {
    "avx2", runs_here, round, multiply_panels<Avx2>, multiply_dense_avx2, unpack_short_avx2};

}  // namespace weft::quant::kernels

#endif
