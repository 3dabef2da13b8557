#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/quant/kernels/avx512_blocks.h"
#include "weft/quant/kernels/panel_kernel.h"
#include "weft/quant/kernels/panel_loops.h"
#include "weft/quant/kernels/streams.h"

namespace weft::quant::kernels {
namespace {

bool runs_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") &&
         __builtin_cpu_supports("f16c");
}

// Four columns of x for every row: a broadcast out of memory is part of the product that takes it.
[[gnu::always_inline]] inline __m512i broadcast(const int8_t* four) {
  using Word = int __attribute__((may_alias, aligned(1)));
  return _mm512_set1_epi32(*reinterpret_cast<const Word*>(four));
}

// Sixteen rows' products of steps [kFirst, kFirst + kCount). With kSums above 1, one step need not
// wait for the last.
template <int kFirst, int kCount, int kSums>
[[gnu::always_inline]] inline __m512i products(const __m512i* codes, const int8_t* x) {
  __m512i sums[kSums];
#pragma GCC unroll 8
  for (int j = 0; j < kCount; ++j) {
    const __m512i sum = j < kSums ? _mm512_setzero_si512() : sums[j % kSums];
    sums[j % kSums] = _mm512_dpbusd_epi32(sum, codes[kFirst + j], broadcast(x + 4 * (kFirst + j)));
  }
  for (int i = 1; i < kSums; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  return sums[0];
}

// The blocks of a tile's tokens, one after the other.
template <int kTokens, int kGroups, bool kIs16>
class TileBlocks {
 public:
  TileBlocks(const RoundedInputs& x, int64_t first)
      : codes_(x.codes + first * kBlockColumns),
        lower_codes_(kIs16 ? x.lower_codes + first * kBlockColumns : nullptr),
        scales_(x.scales + first),
        sums_(x.sums + 2 * first) {}

  // total += the next block times w's.
  [[gnu::always_inline]] void add_next(const Block<kGroups>& block, __m512& total) {
    const __m512 scale = _mm512_set1_ps(*scales_++);
    if constexpr (kGroups == 1) {
      add_steps<0, kSteps>(block.codes, _mm512_mul_ps(block.scales[0], scale), total);
      total = _mm512_fmadd_ps(block.offsets[0], _mm512_set1_ps(sums_[0]), total);
    } else {
      add_steps<0, kSteps / 2>(block.codes, _mm512_mul_ps(block.scales[0], scale), total);
      add_steps<kSteps / 2, kSteps / 2>(block.codes, _mm512_mul_ps(block.scales[1], scale), total);
      total = _mm512_fmadd_ps(block.offsets[0], _mm512_set1_ps(sums_[0] - sums_[1]), total);
      total = _mm512_fmadd_ps(block.offsets[1], _mm512_set1_ps(sums_[1]), total);
    }
    codes_ += kBlockColumns;
    if constexpr (kIs16) lower_codes_ += kBlockColumns;
    sums_ += 2;
  }

 private:
  template <int kFirst, int kCount>
  [[gnu::always_inline]] void add_steps(const __m512i* codes, __m512 scale, __m512& total) const {
    constexpr int kSums = kTokens < 4 ? 2 : 1;
    __m512i sum = products<kFirst, kCount, kSums>(codes, codes_);
    if constexpr (kIs16) {
      static_assert(kUpper == 1 << 7);
      const __m512i lower = products<kFirst, kCount, kSums>(codes, lower_codes_);
      sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 7), lower);
    }
    total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, total);
  }

  const int8_t* codes_;
  const int8_t* lower_codes_;
  const float* scales_;
  const float* sums_;
};

// kPanels panels for a tile of kTokens tokens from `first` on.
template <PanelNumbers kNumbers, int kGroups, bool kIs16, bool kIsShared, int kTokens, int kPanels>
[[gnu::noinline]] void multiply_run_of(const Panels& w, const PanelRun& run, const RoundedInputs& x,
                                       int64_t first, const PanelOutputs& y) {
  const PanelForm form = w.form;
  // Tiles of few blocks would notice what their kind does not need.
  const int64_t bytes =
      form.header_bytes() + kPanelRows * kBlockColumns * PanelForm{kNumbers}.bits() / 8;
  const int64_t shared_numbers = kIsShared ? form.shared_numbers() : 0;
  const uint8_t* shared = run.panel;
  const int64_t first_block = w.first_block, end = first_block + w.num_blocks;
  const uint8_t* panel = run.panel + (kIsShared ? w.shared_bytes() : 0) + first_block * bytes;
  TileBlocks<kTokens, kGroups, kIs16> blocks(x, first * w.blocks_of_row() + first_block * kTokens);
  __m512 totals[kPanels][kTokens];
  for (auto& of_panel : totals) {
#pragma GCC unroll 8
    for (__m512& total : of_panel) total = _mm512_setzero_ps();
  }
  for (int64_t b = first_block; b < end; ++b, panel += bytes) {
    const auto* const numbers =
        reinterpret_cast<const float*>(shared) + b / kSharedBlocks * shared_numbers;
    TileBlocks<kTokens, kGroups, kIs16> next = blocks;
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* const own = panel + p * run.apart;
      if constexpr (kTokens <= 2) fetch_ahead<kPanels>(own, bytes);
      const Block<kGroups> block = load_block<kNumbers, kGroups, kIsShared>(
          form, own, numbers + p * run.apart / static_cast<int64_t>(sizeof(float)));
      next = blocks;
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) next.add_next(block, totals[p][t]);
    }
    blocks = next;
  }
  for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      _mm512_storeu_ps(y.data + (first + t) * y.stride + p * run.rows_apart, totals[p][t]);
    }
  }
}

struct Vnni {
  // A tile of any number of tokens from 1 to kMost.
  template <PanelNumbers kNumbers, int kGroups, bool kIs16, bool kIsShared, int kMost = kTileTokens>
  static void multiply_tile(const Panels& w, const uint8_t* panel, const RoundedInputs& x,
                            int64_t first, const PanelOutputs& y) {
    if (kMost == 1 || x.tile_tokens(first) == kMost) {
      multiply_run_of<kNumbers, kGroups, kIs16, kIsShared, kMost, 1>(w, {panel}, x, first, y);
    } else if constexpr (kMost > 1) {
      multiply_tile<kNumbers, kGroups, kIs16, kIsShared, kMost - 1>(w, panel, x, first, y);
    }
  }

  template <PanelNumbers kNumbers, int kGroups, bool kIs16, bool kIsShared, int kPanels>
  static void multiply_run(const Panels& w, const PanelRun& run, const RoundedInputs& x,
                           const PanelOutputs& y) {
    multiply_run_of<kNumbers, kGroups, kIs16, kIsShared, 1, kPanels>(w, run, x, 0, y);
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

bool runs_bfloat16_here() { return runs_here() && __builtin_cpu_supports("avx512bf16"); }

}  // namespace

void round_codes_avx512(const float* x, int64_t num_blocks, const RoundedToken& to) {
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
    const int second = _mm512_reduce_add_epi32(b), total = _mm512_reduce_add_epi32(a) + second;
    to.sums[2 * at] = to.scales[at] * static_cast<float>(total);
    to.sums[2 * at + 1] = to.scales[at] * static_cast<float>(second);
  }
}

void multiply_codes_avx512(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                           const PanelOutputs& y) {
  multiply_panels<Vnni>(w, first, count, x, y);
}

const PanelKernel kAvx512VnniPanelKernel = {
    "avx512_vnni",         runs_here,           round_codes_avx512, multiply_codes_avx512,
    multiply_dense_avx512, unpack_short_avx512, pack_short_avx512};
const PanelKernel kAvx512Bf16PanelKernel = {"avx512_bf16",
                                            runs_bfloat16_here,
                                            round_codes_avx512,
                                            multiply_codes_avx512,
                                            multiply_dense_avx512,
                                            unpack_short_avx512,
                                            pack_short_avx512,
                                            round_bfloat16_avx512,
                                            multiply_bfloat16_avx512,
                                            nullptr,
                                            kAvx512Bf16Panels};

}  // namespace weft::quant::kernels

#endif
