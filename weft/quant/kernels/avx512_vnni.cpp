#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/panel_kernel.h"
#include "weft/quant/kernels/panel_loops.h"

namespace weft::quant::kernels {
namespace {

bool runs_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("f16c");
}

constexpr int kSteps = kBlockColumns / 4;

__m512 widen_halves(const uint8_t* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}

// A block's scales, offsets and codes, one step of four columns each.
struct Block {
  __m512 scales;
  __m512 offsets;
  __m512i codes[kSteps];
};

template <int kBits, bool kIsSymmetric>
[[gnu::always_inline]] inline Block load_block(const uint8_t* from) {
  Block block;
  block.scales = widen_halves(from);
  from += 2 * kPanelRows;
  if constexpr (kIsSymmetric) {
    block.offsets = _mm512_mul_ps(block.scales, _mm512_set1_ps(kBits == 4 ? -8.0F : -128.0F));
  } else {
    block.offsets = widen_halves(from);
    from += 2 * kPanelRows;
  }
  if constexpr (kBits == 8) {
    for (int j = 0; j < kSteps; ++j) block.codes[j] = _mm512_loadu_si512(from + 64 * j);
  } else {
    const __m512i low = _mm512_set1_epi8(15);
    for (int j = 0; j < kSteps / 2; ++j) {
      const __m512i both = _mm512_loadu_si512(from + 64 * j);
      block.codes[j] = _mm512_and_si512(both, low);
      block.codes[j + kSteps / 2] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
    }
  }
  return block;
}

// Four columns of x for every row: a broadcast out of memory is part of the product that takes it.
[[gnu::always_inline]] inline __m512i broadcast(const int8_t* four) {
  using Word = int __attribute__((may_alias, aligned(1)));
  return _mm512_set1_epi32(*reinterpret_cast<const Word*>(four));
}

// Sixteen rows' products of one block. With kSums above 1, one step need not wait for the last.
template <int kSums>
[[gnu::always_inline]] inline __m512i products(const Block& block, const int8_t* x) {
  __m512i sums[kSums];
#pragma GCC unroll 8
  for (int j = 0; j < kSteps; ++j) {
    const __m512i sum = j < kSums ? _mm512_setzero_si512() : sums[j % kSums];
    sums[j % kSums] = _mm512_dpbusd_epi32(sum, block.codes[j], broadcast(x + 4 * j));
  }
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  return sums[0];
}

// The blocks of a tile's tokens, one after the other.
template <int kTokens, bool kIs16>
class TileBlocks {
 public:
  TileBlocks(const RoundedInputs& x, int64_t first)
      : codes_(x.codes + first * kBlockColumns),
        lower_codes_(kIs16 ? x.lower_codes + first * kBlockColumns : nullptr),
        scales_(x.scales + first),
        sums_(x.sums + first) {}

  // total += the next block times w's.
  [[gnu::always_inline]] void add_next(const Block& block, __m512& total) {
    constexpr int kSums = kTokens < 4 ? 2 : 1;
    __m512i sum = products<kSums>(block, codes_);
    if constexpr (kIs16) {
      static_assert(kUpper == 1 << 7);
      sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 7), products<kSums>(block, lower_codes_));
      lower_codes_ += kBlockColumns;
    }
    const __m512 scale = _mm512_mul_ps(block.scales, _mm512_set1_ps(*scales_++));
    total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, total);
    total = _mm512_fmadd_ps(block.offsets, _mm512_set1_ps(*sums_++), total);
    codes_ += kBlockColumns;
  }

 private:
  const int8_t* codes_;
  const int8_t* lower_codes_;
  const float* scales_;
  const float* sums_;
};

// One panel for a tile of kTokens tokens from `first` on.
template <int kBits, bool kIsSymmetric, bool kIs16, int kTokens>
void multiply_panel(const uint8_t* w, int64_t num_blocks, const RoundedInputs& x, int64_t first,
                    const PanelOutputs& y) {
  constexpr int64_t kBytes = kPanelRows * ((kIsSymmetric ? 2 : 4) + kBlockColumns * kBits / 8);
  TileBlocks<kTokens, kIs16> blocks(x, first * num_blocks);
  __m512 totals[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) totals[t] = _mm512_setzero_ps();
  for (int64_t b = 0; b < num_blocks; ++b, w += kBytes) {
    const Block block = load_block<kBits, kIsSymmetric>(w);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) blocks.add_next(block, totals[t]);
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    _mm512_storeu_ps(y.data + (first + t) * y.stride, totals[t]);
  }
}

struct Vnni {
  // A tile of any number of tokens from 1 to kMost.
  template <int kBits, bool kIsSymmetric, bool kIs16, int kMost = kTileTokens>
  static void multiply_tile(const uint8_t* w, int64_t num_blocks, const RoundedInputs& x,
                            int64_t first, const PanelOutputs& y) {
    if (kMost == 1 || x.tile_tokens(first) == kMost) {
      multiply_panel<kBits, kIsSymmetric, kIs16, kMost>(w, num_blocks, x, first, y);
    } else if constexpr (kMost > 1) {
      multiply_tile<kBits, kIsSymmetric, kIs16, kMost - 1>(w, num_blocks, x, first, y);
    }
  }
};

void store_codes(__m512i codes, int8_t* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(codes));
}

// Sixteen codes and, with 16 bits, their lower parts.
void split_codes(__m512i codes, int8_t* upper, int8_t* lower) {
  if (lower == nullptr) return store_codes(codes, upper);
  const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(codes, _mm512_set1_epi32(kUpper / 2)), 7);
  store_codes(high, upper);
  store_codes(_mm512_sub_epi32(codes, _mm512_slli_epi32(high, 7)), lower);
}

void round(const float* x, int64_t num_blocks, const RoundedToken& to) {
  const float limit = to.lower_codes == nullptr ? kMostOf8 : kMostOf16;
  for (int64_t block = 0; block < num_blocks; ++block, x += kBlockColumns) {
    const int64_t at = block * to.stride, first = at * kBlockColumns;
    const __m512 left = _mm512_loadu_ps(x), right = _mm512_loadu_ps(x + 16);
    const float most =
        _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(left), _mm512_abs_ps(right)));
    const __m512 inverse = _mm512_set1_ps(most > kLeast ? limit / most : 0);
    const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(left, inverse));
    const __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(right, inverse));
    int8_t* const lower = to.lower_codes == nullptr ? nullptr : to.lower_codes + first;
    split_codes(a, to.codes + first, lower);
    split_codes(b, to.codes + first + 16, lower == nullptr ? nullptr : lower + 16);
    to.scales[at] = most / limit;
    to.sums[at] =
        to.scales[at] * static_cast<float>(_mm512_reduce_add_epi32(_mm512_add_epi32(a, b)));
  }
}

}  // namespace

const PanelKernel kAvx512VnniPanelKernel = {"avx512_vnni", runs_here, round, multiply_panels<Vnni>};

}  // namespace weft::quant::kernels

#endif
