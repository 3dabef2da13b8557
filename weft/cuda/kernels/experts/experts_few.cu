#include "weft/cuda/kernels/experts/experts_parts.h"
#include "weft/cuda/kernels/few_product.h"
#include "weft/cuda/kernels/launch.h"

namespace weft::cuda {
namespace {

using namespace few;

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
  __shared__ __align__(16) XChunk x[kBuffers<kMostRows> * kMostRows];
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
