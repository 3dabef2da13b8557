#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/avx2_blocks.h"
#include "weft/quant/kernels/panel_kernel.h"
#include "weft/quant/kernels/panel_loops.h"
#include "weft/quant/kernels/streams.h"

namespace weft::quant::kernels {
namespace {

bool runs_here() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

// A panel's rows fill two vectors.
constexpr int kHalves = 2;

__m256 widen_halves(const uint8_t* halves) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
}

// Products of nibbles, pairs of columns added: a block's eight stay below 15 * 127 * 2 * 8, which
// 16 bits hold.
__m256i add_products(__m256i sums, __m256i nibbles, __m256i x) {
  return _mm256_add_epi16(sums, _mm256_maddubs_epi16(nibbles, x));
}

__m256i add_neighbours(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }

// What codes are read with: of a table, the low and the high half of the code of each index.
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

// Four columns of a token for every row.
[[gnu::always_inline]] inline __m256i columns(const int8_t* x) {
  int four;
  __builtin_memcpy(&four, x, sizeof(four));
  return _mm256_set1_epi32(four);
}

// A block's codes of eight rows as products take them, in steps of four columns; those of 8 bits by
// their low and high halves.
template <PanelNumbers kNumbers>
class Steps {
 public:
  static constexpr bool kIsTable =
      kNumbers == PanelNumbers::kTable3 || kNumbers == PanelNumbers::kTable4;
  static constexpr bool kHasHalves = kNumbers == PanelNumbers::kCodes8 || kIsTable;
  // Codes of which eight steps' pairs would not stay within 16 bits.
  static constexpr bool kIsLarge =
      kNumbers == PanelNumbers::kCodes5 || kNumbers == PanelNumbers::kCodes6;
  __m256i low[kSteps], high[kHasHalves ? kSteps : 1];

  [[gnu::always_inline]] Steps(const uint8_t* codes, const CodeTable& table) {
    if constexpr (kNumbers == PanelNumbers::kCodes8) {
#pragma GCC unroll 8
      for (int j = 0; j < kSteps; ++j) {
        const __m256i both = load(codes + 4 * kPanelRows * j);
        low[j] = low_nibbles(both);
        high[j] = high_nibbles(both);
      }
    } else if constexpr (kNumbers == PanelNumbers::kCodes6) {
      load_sixes(codes, low);
      load_sixes(codes + 3 * kPanelRows * kSteps / 2, low + kSteps / 2);
    } else if constexpr (kNumbers == PanelNumbers::kCodes2) {
      load_twos(codes, low);
    } else if constexpr (kNumbers == PanelNumbers::kCodes3 || kNumbers == PanelNumbers::kTable3) {
      load_twos(codes, low);
      add_highest<2>(codes + 2 * 4 * kPanelRows, low);
    } else {
      load_fours(codes, low);
      if constexpr (kNumbers == PanelNumbers::kCodes5) {
        add_highest<4>(codes + 4 * 4 * kPanelRows, low);
      }
    }
    if constexpr (kIsTable) look_up(table);
  }

  // Eight rows' products of steps [kFirst, kFirst + kCount) with a token's block.
  template <int kFirst, int kCount>
  [[gnu::always_inline]] __m256i product(const int8_t* x) const {
    if constexpr (kIsLarge) {
      // Two steps' pairs stay below 63 * 127 * 2 * 2, which 16 bits hold.
      __m256i sums = _mm256_setzero_si256();
#pragma GCC unroll 8
      for (int j = kFirst; j < kFirst + kCount; j += 2) {
        const __m256i pairs = _mm256_maddubs_epi16(low[j], columns(x + 4 * j));
        sums = _mm256_add_epi32(
            sums, add_neighbours(add_products(pairs, low[j + 1], columns(x + 4 * j + 4))));
      }
      return sums;
    }
    __m256i sums = _mm256_setzero_si256(), sixteens = sums;
#pragma GCC unroll 8
    for (int j = kFirst; j < kFirst + kCount; ++j) {
      const __m256i fours = columns(x + 4 * j);
      sums = add_products(sums, low[j], fours);
      if constexpr (kHasHalves) sixteens = add_products(sixteens, high[j], fours);
    }
    if constexpr (!kHasHalves) return add_neighbours(sums);
    return _mm256_add_epi32(add_neighbours(sums), _mm256_slli_epi32(add_neighbours(sixteens), 4));
  }

 private:
  // Indices become codes.
  [[gnu::always_inline]] void look_up(const CodeTable& table) {
#pragma GCC unroll 8
    for (int j = 0; j < kSteps; ++j) {
      high[j] = _mm256_shuffle_epi8(table.high, low[j]);
      low[j] = _mm256_shuffle_epi8(table.low, low[j]);
    }
  }
};

// One token's block; of codes of 8 bits there is no `lower`.
struct TokenBlock {
  const int8_t *upper, *lower;
  float scale;
  const float* sums;
};

template <bool kIs16>
[[gnu::always_inline]] inline TokenBlock token_block(const RoundedInputs& x, int64_t at) {
  return {x.codes + at * kBlockColumns, kIs16 ? x.lower_codes + at * kBlockColumns : nullptr,
          x.scales[at], x.sums + 2 * at};
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

// Eight rows of a block, taken apart once for all tokens.
template <PanelNumbers kNumbers, int kGroups, bool kIs16, bool kIsShared>
struct HalfBlock {
  Steps<kNumbers> steps;
  Scales groups[kGroups];

  [[gnu::always_inline]] HalfBlock(const PanelForm& form, const BlockPlace& w)
      : steps(w.codes, w.table) {
    for (int group = 0; group < kGroups; ++group) {
      groups[group] = scales_of<kIsShared>(form, w, group);
    }
  }

  // total += steps [kFirst, kFirst + kCount), which have one scale; `sum` is that of their codes.
  // A sum of both parts is whole, so that only its way to float32 rounds.
  template <int kFirst, int kCount>
  [[gnu::always_inline]] __m256 add_steps(const TokenBlock& x, float sum, const Scales& numbers,
                                          __m256 total) const {
    __m256i product = steps.template product<kFirst, kCount>(x.upper);
    if constexpr (kIs16) {
      product = _mm256_add_epi32(_mm256_slli_epi32(product, 7),
                                 steps.template product<kFirst, kCount>(x.lower));
    }
    const __m256 scales = _mm256_mul_ps(numbers.scales, _mm256_set1_ps(x.scale));
    total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(product), scales, total);
    return _mm256_fmadd_ps(numbers.offsets, _mm256_set1_ps(sum), total);
  }

  [[gnu::always_inline]] __m256 add_to(const TokenBlock& x, __m256 total) const {
    if constexpr (kGroups == 1) {
      return add_steps<0, kSteps>(x, x.sums[0], groups[0], total);
    } else {
      total = add_steps<0, kSteps / 2>(x, x.sums[0] - x.sums[1], groups[0], total);
      return add_steps<kSteps / 2, kSteps / 2>(x, x.sums[1], groups[1], total);
    }
  }
};

constexpr int64_t kHalfRows = kPanelRows / kHalves;

// Where half number `half` of block `block` of `panel` lies.
[[gnu::always_inline]] inline BlockPlace place_of(const PanelForm& form, const uint8_t* panel,
                                                  const uint8_t* block, int64_t shared_block,
                                                  int half, const CodeTable& table) {
  const auto* const shared =
      reinterpret_cast<const float*>(panel) + shared_block / kSharedBlocks * form.shared_numbers();
  return {block + half * form.scale_bytes() / kHalves,
          block + form.header_bytes() + 4 * kHalfRows * half, shared + kHalfRows * half, table};
}

struct Avx2 {
  template <PanelNumbers kNumbers, int kGroups, bool kIs16, bool kIsShared>
  static void multiply_tile(const Panels& w, const uint8_t* panel, const RoundedInputs& x,
                            int64_t first, const PanelOutputs& y) {
    const PanelForm form = w.form;
    const CodeTable table(Steps<kNumbers>::kIsTable ? form.table : nullptr);
    const int64_t tokens = x.tile_tokens(first), end = w.first_block + w.num_blocks;
    const uint8_t* block = panel + w.shared_bytes() + w.first_block * form.block_bytes();
    int64_t at = first * w.blocks_of_row() + w.first_block * tokens;
    __m256 totals[kTileTokens][kHalves] = {};
    for (int64_t b = w.first_block; b < end; ++b, block += form.block_bytes(), at += tokens) {
      if (first == 0) fetch_ahead<1>(block, form.block_bytes());
      for (int half = 0; half < kHalves; ++half) {
        const HalfBlock<kNumbers, kGroups, kIs16, kIsShared> own(
            form, place_of(form, panel, block, b, half, table));
        for (int64_t t = 0; t < tokens; ++t) {
          totals[t][half] = own.add_to(token_block<kIs16>(x, at + t), totals[t][half]);
        }
      }
    }
    for (int64_t t = 0; t < tokens; ++t) {
      for (int half = 0; half < kHalves; ++half) {
        _mm256_storeu_ps(y.data + (first + t) * y.stride + kHalfRows * half, totals[t][half]);
      }
    }
  }

  template <PanelNumbers kNumbers, int kGroups, bool kIs16, bool kIsShared, int kPanels>
  static void multiply_run(const Panels& w, const PanelRun& run, const RoundedInputs& x,
                           const PanelOutputs& y) {
    const PanelForm form = w.form;
    const CodeTable table(Steps<kNumbers>::kIsTable ? form.table : nullptr);
    const int64_t first = w.first_block, end = first + w.num_blocks;
    const uint8_t* blocks = run.panel + w.shared_bytes() + first * form.block_bytes();
    __m256 totals[kPanels][kHalves] = {};
    for (int64_t b = first; b < end; ++b, blocks += form.block_bytes()) {
      const TokenBlock token = token_block<kIs16>(x, b);
      for (int p = 0; p < kPanels; ++p) {
        const int64_t apart = p * run.apart;
        fetch_ahead<kPanels>(blocks + apart, form.block_bytes());
        for (int half = 0; half < kHalves; ++half) {
          const HalfBlock<kNumbers, kGroups, kIs16, kIsShared> own(
              form, place_of(form, run.panel + apart, blocks + apart, b, half, table));
          totals[p][half] = own.add_to(token, totals[p][half]);
        }
      }
    }
    for (int p = 0; p < kPanels; ++p) {
      for (int half = 0; half < kHalves; ++half) {
        _mm256_storeu_ps(y.data + p * run.rows_apart + kHalfRows * half, totals[p][half]);
      }
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
    "avx2",         runs_here, round, multiply_panels<Avx2>, multiply_dense_avx2, unpack_short_avx2,
    pack_short_avx2};

}  // namespace weft::quant::kernels

#endif
