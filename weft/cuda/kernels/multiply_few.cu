#include "weft/cuda/kernels/few_rows.h"
#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/spans.h"
#include "weft/cuda/kernels/warp.h"

namespace weft::cuda {
namespace {

// A warp has kOuts rows of w, and its lanes share their columns. A block's warps share x, of which
// kChunk columns are in shared memory at a time.
constexpr int kWarps = 4, kOuts = 4, kThreads = kWarps * kLanes;
constexpr int32_t kChunk = 1024;
constexpr int kFours = kChunk / 4;

struct FewCall {
  Product products[kMostProducts];
  // Of each product.
  int32_t blocks[kMostProducts];
  const float* x;
  int32_t rows;
};

// Part of x: kRows rows, in fours of numbers.
template <int kRows>
using XChunk = FourFloats[kRows][kFours];

// Where a four lies: lanes that read every second or every eighth meet no bank twice.
__device__ int place_of(int four) { return four ^ (four / 8 % 8); }

// The rows of x and w that a warp multiplies.
template <int kRows>
struct Part {
  MatrixView w;
  const float* x[kRows];
  int32_t outs[kOuts];
};

template <int kRows>
__device__ void bring_chunk(const Part<kRows>& part, int32_t begin, XChunk<kRows>& to) {
  for (int four = static_cast<int>(threadIdx.x); four < kFours; four += kThreads) {
    const int32_t column = begin + four * 4;
    if (column >= part.w.in) break;
    WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
      to[r][place_of(four)] = load<FourFloats>(part.x[r] + column);
    }
  }
}

// A lane's part of a chunk of w.
template <class Span>
struct Spans {
  static constexpr int kSteps = kChunk / (kLanes * Span::kColumns);
  Span of[kSteps][kOuts];
};

template <class Span, int kRows>
__device__ void bring_spans(const Part<kRows>& part, int32_t begin, Spans<Span>& to) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kLanes;
  const int32_t units_per_span = Span::kColumns / kUnit;
  const int32_t per_group = part.w.units_per_group / units_per_span;
  WEFT_UNROLL for (int step = 0; step < Spans<Span>::kSteps; ++step) {
    const int32_t span = begin / Span::kColumns + step * kLanes + lane;
    if (span * Span::kColumns >= part.w.in) break;
    const int32_t group = per_group <= 1 ? span : span / per_group;
    WEFT_UNROLL for (int o = 0; o < kOuts; ++o) {
      to.of[step][o].load(part.w, part.outs[o], span, group);
    }
  }
}

// dot[o][r] += spans of w times x; total[r] += x, where quant groups have an offset. Each sum goes
// from column to column, whatever kRows is.
template <class Span, int kRows>
__device__ void multiply_span(const Span (&spans)[kOuts], const XChunk<kRows>& x, int first_four,
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

template <class Span, int kRows>
__device__ void add_spans(const Part<kRows>& part, int32_t begin, const Spans<Span>& spans,
                          const XChunk<kRows>& x, float (&sum)[kOuts][kRows]) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  WEFT_UNROLL for (int step = 0; step < Spans<Span>::kSteps; ++step) {
    const int own = (step * kLanes + lane) * Span::kColumns;
    if (begin + own >= part.w.in) break;
    float total[kRows] = {};
    if constexpr (Span::kHasScale) {
      float dot[kOuts][kRows] = {};
      multiply_span<Span, kRows>(spans.of[step], x, own / 4, dot, total);
      WEFT_UNROLL for (int o = 0; o < kOuts; ++o) {
        const ScaleOffset group = spans.of[step][o].scale_offset(part.w);
        WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
          sum[o][r] = fmaf(group.scale, dot[o][r], fmaf(group.offset, total[r], sum[o][r]));
        }
      }
    } else {
      multiply_span<Span, kRows>(spans.of[step], x, own / 4, sum, total);
    }
  }
}

// Spans of many columns are brought a chunk ahead where registers suffice; those of few are several
// of a chunk anyway.
template <class Span, int kRows>
__device__ void sum_up(const Part<kRows>& part, float (&sum)[kOuts][kRows]) {
  constexpr bool kIsAhead = Spans<Span>::kSteps == 1 && kRows <= 4;
  // With two, chunks are brought while others are still used.
  constexpr int kBuffers = kRows <= 4 ? 2 : 1;
  __shared__ __align__(16) XChunk<kRows> x[kBuffers];
  Spans<Span> spans = {}, next = {};
  if (kIsAhead) bring_spans(part, 0, spans);
  for (int32_t begin = 0, buffer = 0; begin < part.w.in; begin += kChunk) {
    if (!kIsAhead) bring_spans(part, begin, spans);
    bring_chunk<kRows>(part, begin, x[buffer]);
    __syncthreads();
    if (kIsAhead) bring_spans(part, begin + kChunk, next);
    add_spans<Span, kRows>(part, begin, spans, x[buffer], sum);
    if (kBuffers == 1) __syncthreads();
    if (kIsAhead) spans = next;
    buffer = (buffer + 1) % kBuffers;
  }
}

// Blocks along x for runs of kRows rows of x, along y for the rows of each w. What lies beyond the
// last row is computed as the last and not written.
template <class Span, int kRows>
__global__ void multiply_few(FewCall call) {
  int32_t block = static_cast<int32_t>(blockIdx.y), index = 0;
  while (block >= call.blocks[index]) block -= call.blocks[index++];
  const Product& product = call.products[index];
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kLanes;
  const int32_t first_out = (block * kWarps + warp) * kOuts;
  const int32_t first_row = static_cast<int32_t>(blockIdx.x) * kRows;
  Part<kRows> part;
  part.w = product.w;
  WEFT_UNROLL for (int o = 0; o < kOuts; ++o) part.outs[o] = min(first_out + o, part.w.out - 1);
  WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
    part.x[r] = call.x + static_cast<int64_t>(min(first_row + r, call.rows - 1)) * part.w.in;
  }
  float sum[kOuts][kRows] = {};
  sum_up<Span, kRows>(part, sum);
  WEFT_UNROLL for (int o = 0; o < kOuts; ++o) {
    WEFT_UNROLL for (int r = 0; r < kRows; ++r) {
      const float all = warp_sum(sum[o][r]);
      const int32_t out = first_out + o, row = first_row + r;
      if (threadIdx.x % kLanes == 0 && out < part.w.out && row < call.rows) {
        product.y[static_cast<int64_t>(row) * part.w.out + out] = all;
      }
    }
  }
}

template <class Span, int kRows>
void launch_few(const FewCall& call, unsigned blocks) {
  launch(multiply_few<Span, kRows>, dim3(blocks_of(call.rows, kRows), blocks), kThreads, call);
}

}  // namespace

void multiply_few_rows(std::span<const Product> products, const float* x, int64_t rows) {
  FewCall call = {};
  unsigned blocks = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const unsigned own = blocks_of(products[i].w.out, kWarps * kOuts);
    call.products[i] = products[i];
    call.blocks[i] = static_cast<int32_t>(own);
    blocks += own;
  }
  call.x = x;
  call.rows = static_cast<int32_t>(rows);
  visit_span(products.front().w, [&]<class Span>(const Span& /*span*/) {
    if (rows == 1) return launch_few<Span, 1>(call, blocks);
    if (rows <= 4) return launch_few<Span, 4>(call, blocks);
    launch_few<Span, 8>(call, blocks);
  });
}

}  // namespace weft::cuda
