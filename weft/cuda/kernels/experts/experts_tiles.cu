#include "weft/cuda/kernels/experts/experts_parts.h"
#include "weft/cuda/kernels/launch.h"

namespace weft::cuda {
namespace {

// Columns that are taken at a time, rows of w that a block has, and what a thread computes:
// kOwnRows x kOwnOuts elements, in runs of four.
constexpr int kDepth = 16, kOuts = 128, kOwnRows = 4, kOwnOuts = 8;
constexpr int kThreads = (kTileRows / kOwnRows) * (kOuts / kOwnOuts);
constexpr int kUnits = kDepth / kUnit, kRuns = kOwnOuts / 4, kOutThreads = kOuts / kOwnOuts;
static_assert(kThreads == kOuts && kTileRows * kUnits <= kThreads);
// Rows in shared memory are a multiple of 16 bytes apart.
using XTile = float[kDepth][kTileRows + 4];
using WTile = float[kDepth][kOuts + 4];

// The rows of x that a block multiplies.
struct TileRows {
  const float* x;
  /// Of the first slot; null: slots are rows.
  const int32_t* row_of_slot;
  int32_t first;
  int32_t count;
};

// A thread's units on their way to shared memory: one row's of w, and one of a row of x.
struct Units {
  float w[kUnits][kUnit];
  float x[kUnit];
};

__device__ void bring_units(const MatrixView& w, int32_t out, const float* x_row,
                            int32_t first_unit, Units& to) {
  const int32_t all = w.in / kUnit;
  WEFT_UNROLL for (int unit = 0; unit < kUnits; ++unit) {
    WEFT_UNROLL for (int i = 0; i < kUnit; ++i) to.w[unit][i] = 0;
    if (out < w.out && first_unit + unit < all) unit_values(w, out, first_unit + unit, to.w[unit]);
  }
  WEFT_UNROLL for (int i = 0; i < kUnit; ++i) to.x[i] = 0;
  const int32_t own = first_unit + static_cast<int32_t>(threadIdx.x) / kTileRows;
  if (x_row != nullptr && own < all) {
    read_unit<Dtype::kF32>(reinterpret_cast<const uint8_t*>(x_row + own * kUnit), to.x);
  }
}

__device__ void put_units(const Units& units, WTile& w_tile, XTile& x_tile) {
  const int thread = static_cast<int>(threadIdx.x);
  WEFT_UNROLL for (int unit = 0; unit < kUnits; ++unit) {
    WEFT_UNROLL for (int i = 0; i < kUnit; ++i) w_tile[unit * kUnit + i][thread] = units.w[unit][i];
  }
  if (thread >= kTileRows * kUnits) return;
  WEFT_UNROLL for (int i = 0; i < kUnit; ++i) {
    x_tile[thread / kTileRows * kUnit + i][thread % kTileRows] = units.x[i];
  }
}

// Where a thread's element j lies: a block's part of one run for all threads, then that of the
// next, so that a warp's threads read side by side.
__device__ int own_out(int j) {
  return j / 4 * (kOuts / kRuns) + static_cast<int>(threadIdx.x) % kOutThreads * 4 + j % 4;
}
__device__ int first_own_row() { return static_cast<int>(threadIdx.x) / kOutThreads * kOwnRows; }

__device__ void add_tile(const WTile& w_tile, const XTile& x_tile,
                         float (&sum)[kOwnRows][kOwnOuts]) {
  WEFT_UNROLL for (int depth = 0; depth < kDepth; ++depth) {
    const auto x4 = load<FourFloats>(&x_tile[depth][first_own_row()]);
    FourFloats w4[kRuns];
    WEFT_UNROLL for (int run = 0; run < kRuns; ++run) {
      w4[run] = load<FourFloats>(&w_tile[depth][own_out(run * 4)]);
    }
    WEFT_UNROLL for (int i = 0; i < kOwnRows; ++i) {
      WEFT_UNROLL for (int j = 0; j < kOwnOuts; ++j) {
        sum[i][j] = fmaf(x4.x[i], w4[j / 4].x[j % 4], sum[i][j]);
      }
    }
  }
}

// The row of x that a thread brings units of; null: none.
__device__ const float* row_to_bring(const TileRows& rows, int32_t in) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x), own = thread % kTileRows;
  if (thread >= kTileRows * kUnits || own >= rows.count) return nullptr;
  const int32_t slot = rows.first + own;
  const int64_t row = rows.row_of_slot == nullptr ? slot : rows.row_of_slot[slot];
  return rows.x + row * in;
}

// sum = rows times the rows of w from `first_out` on. Units are brought while those before them are
// multiplied.
__device__ void multiply_tile(const MatrixView& w, const TileRows& rows, int32_t first_out,
                              float (&sum)[kOwnRows][kOwnOuts]) {
  __shared__ __align__(16) WTile w_tile[2];
  __shared__ __align__(16) XTile x_tile[2];
  const float* const x_row = row_to_bring(rows, w.in);
  const int32_t out = first_out + static_cast<int32_t>(threadIdx.x);
  Units units;
  bring_units(w, out, x_row, 0, units);
  for (int32_t begin = 0, buffer = 0; begin < w.in; begin += kDepth, buffer = 1 - buffer) {
    put_units(units, w_tile[buffer], x_tile[buffer]);
    __syncthreads();
    bring_units(w, out, x_row, (begin + kDepth) / kUnit, units);
    add_tile(w_tile[buffer], x_tile[buffer], sum);
  }
}

// Blocks along x for tiles, so that those of one expert run together, along y for the rows of each
// w.
__global__ void __launch_bounds__(kThreads) multiply_tiles(TilesCall call) {
  const ExpertTile tile = call.tiles[blockIdx.x];
  if (tile.count == 0) return;
  const int32_t block = static_cast<int32_t>(blockIdx.y);
  const int32_t of_first = (call.matrices[0].form.out + kOuts - 1) / kOuts;
  const int32_t index = block < of_first ? 0 : 1;
  const MatrixView w = call.matrices[index].all[tile.expert];
  const int32_t first_out = (block - index * of_first) * kOuts;
  float sum[kOwnRows][kOwnOuts] = {};
  multiply_tile(w, {call.x, call.row_of_slot, tile.first, tile.count}, first_out, sum);
  WEFT_UNROLL for (int i = 0; i < kOwnRows; ++i) {
    const int32_t row = first_own_row() + i;
    float* const y = call.y[index] + static_cast<int64_t>(tile.first + row) * w.out;
    WEFT_UNROLL for (int j = 0; j < kOwnOuts; ++j) {
      const int32_t out = first_out + own_out(j);
      if (row < tile.count && out < w.out) y[out] = sum[i][j];
    }
  }
}

}  // namespace

void products_of_tiles(const TilesCall& call, int32_t tiles) {
  unsigned blocks = 0;
  for (int32_t i = 0; i < call.num_products; ++i) {
    blocks += blocks_of(call.matrices[i].form.out, kOuts);
  }
  launch(multiply_tiles, dim3(static_cast<unsigned>(tiles), blocks), kThreads, call);
}

}  // namespace weft::cuda
