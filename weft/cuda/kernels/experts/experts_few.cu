#include "weft/cuda/kernels/experts/experts_parts.h"
#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/spans.h"
#include "weft/cuda/kernels/warp.h"

namespace weft::cuda {
namespace {

// A warp has kOuts rows of matrices, and its lanes share their columns. A block's warps share the
// rows of x, of which kChunk columns are in shared memory at a time.
constexpr int kWarps = 4, kOuts = 4, kThreads = kWarps * kLanes;
constexpr int32_t kChunk = 1024;
constexpr int kFours = kChunk / 4;
// Chunks are brought while others are still used.
constexpr int kBuffers = 2;

// Part of a row of x in fours of numbers.
using XChunk = FourFloats[kFours];

// Where a four lies: lanes that read every second or every eighth meet no bank twice.
__device__ int place_of(int four) { return four ^ (four / 8 % 8); }

// What a warp multiplies: kOuts / kMatrices rows of each matrix, with kRows rows of x.
template <int kMatrices, int kRows>
struct Part {
  static constexpr int kEach = kOuts / kMatrices;
  MatrixView w[kMatrices];
  int32_t outs[kEach];
  const float* x[kRows];
};

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

// A lane's part of a chunk of the matrices.
template <class Span>
struct Spans {
  static constexpr int kSteps = kChunk / (kLanes * Span::kColumns);
  Span of[kSteps][kOuts];
};

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

// dot[o][r] += a span of each row of w times x; total[r] += x. Each sum goes from column to column,
// whatever kRows is.
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

// Spans of many columns are brought a chunk ahead; those of few are several of a chunk anyway. `x`
// is shared: kBuffers * kRows chunks.
template <class Span, int kMatrices, int kRows>
__device__ void sum_up(const Part<kMatrices, kRows>& part, XChunk* x, float (&sum)[kOuts][kRows]) {
  constexpr bool kIsAhead = Spans<Span>::kSteps == 1;
  Spans<Span> spans = {}, next = {};
  if (kIsAhead) bring_spans(part, 0, spans);
  for (int32_t begin = 0, buffer = 0; begin < part.w[0].in; begin += kChunk, buffer = 1 - buffer) {
    XChunk* const own = x + buffer * kRows;
    if (!kIsAhead) bring_spans(part, begin, spans);
    bring_chunk(part, begin, own);
    __syncthreads();
    if (kIsAhead) bring_spans(part, begin + kChunk, next);
    add_spans(part, begin, spans, own, sum);
    if (kIsAhead) spans = next;
  }
  WEFT_UNROLL for (int o = 0; o < kOuts; ++o) {
    WEFT_UNROLL for (int r = 0; r < kRows; ++r) sum[o][r] = warp_sum(sum[o][r]);
  }
}

// The first of a warp's rows of each matrix.
template <int kMatrices>
__device__ int32_t first_out() {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kLanes;
  return (static_cast<int32_t>(blockIdx.y) * kWarps + warp) * (kOuts / kMatrices);
}

// What lies beyond the last row, of x or a matrix, is computed as the last and not written.
template <int kRows, int kMatrices>
__device__ Part<kMatrices, kRows> part_of(const ExpertMatrices (&matrices)[kMatrices],
                                          const ExpertTile& tile, const float* x,
                                          const int32_t* row_of_slot) {
  Part<kMatrices, kRows> part;
  WEFT_UNROLL for (int i = 0; i < kMatrices; ++i) {
    part.w[i] = own_matrix(matrices[i], tile.expert);
  }
  WEFT_UNROLL for (int o = 0; o < kOuts / kMatrices; ++o) {
    part.outs[o] = min(first_out<kMatrices>() + o, part.w[0].out - 1);
  }
  WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
    const int32_t slot = tile.first + min(r, tile.count - 1);
    const int64_t row = row_of_slot == nullptr ? slot : row_of_slot[slot];
    part.x[r] = x + row * part.w[0].in;
  }
  return part;
}

template <class Span, int kRows>
__device__ void compute(const HiddenCall& call, const ExpertTile& tile, XChunk* x) {
  const auto part = part_of<kRows>(call.matrices, tile, call.x, call.row_of_slot);
  float sum[kOuts][kRows] = {};
  sum_up<Span>(part, x, sum);
  if (threadIdx.x % kLanes != 0) return;
  const int32_t width = part.w[0].out;
  WEFT_UNROLL for (int o = 0; o < kOuts / 2; ++o) {
    const int32_t out = first_out<2>() + o;
    if (out >= width) break;
    const int64_t at_bias = static_cast<int64_t>(tile.expert) * width + out;
    const float gate_bias = number_or_zero(call.gate_bias, at_bias);
    const float up_bias = number_or_zero(call.up_bias, at_bias);
    WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
      if (r >= tile.count) break;
      call.hidden[static_cast<int64_t>(tile.first + r) * width + out] =
          gated(sum[o][r] + gate_bias, sum[o + kOuts / 2][r] + up_bias, call.gating);
    }
  }
}

template <class Span, int kRows>
__device__ void compute(const ProductCall& call, const ExpertTile& tile, XChunk* x) {
  const auto part = part_of<kRows>(call.matrices, tile, call.x, nullptr);
  float sum[kOuts][kRows] = {};
  sum_up<Span>(part, x, sum);
  if (threadIdx.x % kLanes != 0) return;
  WEFT_UNROLL for (int o = 0; o < kOuts; ++o) {
    const int32_t out = first_out<1>() + o;
    if (out >= part.w[0].out) break;
    WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
      if (r < tile.count)
        call.y[static_cast<int64_t>(tile.first + r) * part.w[0].out + out] = sum[o][r];
    }
  }
}

// Blocks along x for tiles, so that those of one expert run together, along y for the rows of its
// matrices. Where a tile has no rows, whole blocks have nothing to do.
template <class Span, int kMostRows, class Call>
__global__ void compute_few(Call call) {
  __shared__ __align__(16) XChunk x[kBuffers * kMostRows];
  const ExpertTile tile = call.tiles[blockIdx.x];
  if (tile.count == 0) return;
  if (tile.count == 1) return compute<Span, 1>(call, tile, x);
  if constexpr (kMostRows > 1) compute<Span, kMostRows>(call, tile, x);
}

template <class Call>
void launch_few(const Call& call, const ExpertRows& rows, int matrices) {
  const MatrixView& form = call.matrices[0].form;
  const dim3 blocks(static_cast<unsigned>(rows.num_tiles),
                    blocks_of(form.out, kWarps * kOuts / matrices));
  visit_span(form, [&]<class Span>(const Span& /*span*/) {
    if (rows.tile_rows == 1) return launch(compute_few<Span, 1, Call>, blocks, kThreads, call);
    launch(compute_few<Span, kFewTileRows, Call>, blocks, kThreads, call);
  });
}

}  // namespace

void hidden_of_few(const HiddenCall& call, const ExpertRows& rows) { launch_few(call, rows, 2); }

void products_of_few(const ProductCall& call, const ExpertRows& rows) { launch_few(call, rows, 1); }

}  // namespace weft::cuda
