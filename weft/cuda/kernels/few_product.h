#pragma once

#include "weft/cuda/kernels/spans.h"
#include "weft/cuda/kernels/warp.h"

/// Products of few rows: what a warp does of them; for the kernels alone.
namespace weft::cuda::few {

/// A warp has kOuts rows of matrices, and its lanes share their columns. A block's warps share the
/// rows of x, of which kChunk columns are in shared memory at a time.
inline constexpr int kWarps = 4, kOuts = 4, kThreads = kWarps * kLanes;
inline constexpr int32_t kChunk = 1024;
inline constexpr int kFours = kChunk / 4;

/// How many chunks of kRows rows of x a block has: with two, one is brought while the other is
/// still used.
template <int kRows>
inline constexpr int kBuffers = kRows <= 4 ? 2 : 1;

/// Part of a row of x in fours of numbers.
using XChunk = FourFloats[kFours];

/// Where a four lies: lanes that read every second or every eighth meet no bank twice.
WEFT_BOTH int place_of(int four) { return four ^ (four / 8 % 8); }

/// What a warp multiplies: kOuts / kMatrices rows of each matrix, with kRows rows of x.
template <int kMatrices, int kRows>
struct Part {
  static constexpr int kEach = kOuts / kMatrices;
  MatrixView w[kMatrices];
  int32_t outs[kEach];
  const float* x[kRows];
};

/// Brings columns from `begin` on of the rows of x.
template <int kMatrices, int kRows>
__device__ void bring_chunk(const Part<kMatrices, kRows>& part, int32_t begin, XChunk* to) {
  for (int four = static_cast<int>(threadIdx.x); four < kFours; four += kThreads) {
    const int32_t column = begin + four * 4;
    if (column >= part.w[0].in) break;
    WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
      to[r][place_of(four)] = load<FourFloats>(part.x[r] + column);
    }
  }
}

/// A lane's part of a chunk of the matrices.
template <class Span>
struct Spans {
  static constexpr int kSteps = kChunk / (kLanes * Span::kColumns);
  Span of[kSteps][kOuts];
};

/// Brings the same columns of the rows of the matrices.
template <class Span, int kMatrices, int kRows>
__device__ void bring_spans(const Part<kMatrices, kRows>& part, int32_t begin, Spans<Span>& to) {
  constexpr int kEach = Part<kMatrices, kRows>::kEach;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kLanes;
  const int32_t per_group = part.w[0].units_per_group / (Span::kColumns / kUnit);
  WEFT_UNROLL for (int step = 0; step < Spans<Span>::kSteps; ++step) {
    const int32_t span = begin / Span::kColumns + step * kLanes + lane;
    if (span * Span::kColumns >= part.w[0].in) break;
    const int32_t group = per_group <= 1 ? span : span / per_group;
    WEFT_UNROLL for (int o = 0; o < kOuts; ++o) {
      to.of[step][o].load(part.w[o / kEach], part.outs[o % kEach], span, group);
    }
  }
}

/// dot[o][r] += a span of each row of w times x; total[r] += x, where quant groups have an offset.
/// Each sum goes from column to column, whatever kRows is.
template <class Span, int kRows>
__device__ void multiply_span(const Span (&spans)[kOuts], const XChunk* x, int first_four,
                              float (&dot)[kOuts][kRows], float (&total)[kRows]) {
  WEFT_UNROLL for (int unit = 0; unit < Span::kColumns / kUnit; ++unit) {
    float v[kOuts][kUnit];
    WEFT_UNROLL for (int o = 0; o < kOuts; ++o) spans[o].read(unit, v[o]);
    WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto low = load<FourFloats>(&x[r][place_of(first_four + 2 * unit)]);
      const auto high = load<FourFloats>(&x[r][place_of(first_four + 2 * unit + 1)]);
      WEFT_UNROLL for (int i = 0; i < kUnit; ++i) {
        const float a = i < 4 ? low.x[i % 4] : high.x[i % 4];
        if (Span::kHasScale) total[r] += a;
        WEFT_UNROLL for (int o = 0; o < kOuts; ++o) dot[o][r] = fmaf(v[o][i], a, dot[o][r]);
      }
    }
  }
}

/// sum += the chunk of x times the spans.
template <class Span, int kMatrices, int kRows>
__device__ void add_spans(const Part<kMatrices, kRows>& part, int32_t begin,
                          const Spans<Span>& spans, const XChunk* x, float (&sum)[kOuts][kRows]) {
  constexpr int kEach = Part<kMatrices, kRows>::kEach;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  WEFT_UNROLL for (int step = 0; step < Spans<Span>::kSteps; ++step) {
    const int own = (step * kLanes + lane) * Span::kColumns;
    if (begin + own >= part.w[0].in) break;
    float total[kRows] = {};
    if constexpr (Span::kHasScale) {
      float dot[kOuts][kRows] = {};
      multiply_span<Span, kRows>(spans.of[step], x, own / 4, dot, total);
      WEFT_UNROLL for (int o = 0; o < kOuts; ++o) {
        const ScaleOffset group = spans.of[step][o].scale_offset(part.w[o / kEach]);
        WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
          sum[o][r] = fmaf(group.scale, dot[o][r], fmaf(group.offset, total[r], sum[o][r]));
        }
      }
    } else {
      multiply_span<Span, kRows>(spans.of[step], x, own / 4, sum, total);
    }
  }
}

/// Sums of all columns, the same on each lane: sum[o][r] is of row o of the matrices, one matrix
/// after the other, and row r of x. `x` is shared: kBuffers<kRows> times kRows chunks. Spans of
/// many columns are brought a chunk ahead where registers suffice; those of few are several of a
/// chunk anyway.
template <class Span, int kMatrices, int kRows>
__device__ void sum_up(const Part<kMatrices, kRows>& part, XChunk* x, float (&sum)[kOuts][kRows]) {
  constexpr bool kIsAhead = Spans<Span>::kSteps == 1 && kRows <= 4;
  Spans<Span> spans = {}, next = {};
  if (kIsAhead) bring_spans(part, 0, spans);
  for (int32_t begin = 0, buffer = 0; begin < part.w[0].in; begin += kChunk) {
    XChunk* const own = x + buffer * kRows;
    if (!kIsAhead) bring_spans(part, begin, spans);
    bring_chunk(part, begin, own);
    __syncthreads();
    if (kIsAhead) bring_spans(part, begin + kChunk, next);
    add_spans(part, begin, spans, own, sum);
    if (kBuffers<kRows> == 1) __syncthreads();
    if (kIsAhead) spans = next;
    buffer = (buffer + 1) % kBuffers<kRows>;
  }
  WEFT_UNROLL for (int o = 0; o < kOuts; ++o) {
    WEFT_UNROLL for (int r = 0; r < kRows; ++r) sum[o][r] = warp_sum(sum[o][r]);
  }
}

}  // namespace weft::cuda::few
