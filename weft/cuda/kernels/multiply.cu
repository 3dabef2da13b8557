#include <algorithm>

#include "weft/core/error.h"
#include "weft/cuda/kernels/few_rows.h"
#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/multiply.h"
#include "weft/cuda/kernels/spans.h"

namespace weft::cuda {
namespace {

// Columns that are taken at a time.
constexpr int kDepth = 16;

// How a block's threads share a tile of y, kTile x kTile of it: each computes kOwnX x kOwnW
// elements, in runs of four, and brings one unit of x and one of w at a time.
template <int kTile, int kOwnX, int kOwnW>
struct Tiling {
  static constexpr int kEdge = kTile;
  static constexpr int kRunsX = kOwnX / 4, kRunsW = kOwnW / 4;
  static constexpr int kThreadsW = kTile / kOwnW;
  static constexpr int kThreads = kTile / kOwnX * kThreadsW;
  static_assert(kThreads * kUnit == kTile * kDepth);
  // Rows of tiles in shared memory are a multiple of 16 bytes apart.
  static constexpr int kStride = kTile + 4;
  using Tile = float[kDepth][kStride];
};
using SmallTiling = Tiling<64, 8, 4>;
using LargeTiling = Tiling<128, 8, 8>;
// With fewer tiles than this, much of a GPU would have none.
constexpr int64_t kManyTiles = 128;

struct TileCall {
  Product products[kMostProducts];
  // Of each product.
  int32_t blocks[kMostProducts];
  const float* x;
  int32_t rows;
};

// A thread's units of x and w on their way to shared memory.
struct Units {
  float x[kUnit], w[kUnit];
};

__device__ void bring_units(const TileCall& call, const MatrixView& w, int32_t x_row, int32_t w_row,
                            int32_t unit, Units& to) {
  for (float& each : to.x) each = 0;
  for (float& each : to.w) each = 0;
  if (unit >= w.in / kUnit) return;
  if (x_row < call.rows) {
    read_unit<Dtype::kF32>(reinterpret_cast<const uint8_t*>(
                               call.x + static_cast<int64_t>(x_row) * w.in + unit * kUnit),
                           to.x);
  }
  if (w_row < w.out) unit_values(w, w_row, unit, to.w);
}

// Puts a unit of numbers as a column's part: number i to row `depth + i`.
template <class Tile>
__device__ void put_unit(Tile& tile, int depth, int column, const float (&v)[kUnit]) {
  WEFT_UNROLL for (int i = 0; i < kUnit; ++i) tile[depth + i][column] = v[i];
}

// Where runs of four of a thread's elements begin: a tile's part of one run for all threads, then
// that of the next, so that a warp's threads read side by side.
template <int kEdge, int kRuns>
__device__ int own_element(int thread, int i) {
  return i / 4 * (kEdge / kRuns) + thread * 4 + i % 4;
}

template <class T>
__device__ void add_tile(const typename T::Tile& x_tile, const typename T::Tile& w_tile,
                         float (&sum)[4 * T::kRunsX][4 * T::kRunsW]) {
  const int thread = static_cast<int>(threadIdx.x);
  const int of_x = thread / T::kThreadsW, of_w = thread % T::kThreadsW;
  WEFT_UNROLL for (int depth = 0; depth < kDepth; ++depth) {
    FourFloats x4[T::kRunsX], w4[T::kRunsW];
    WEFT_UNROLL for (int run = 0; run < T::kRunsX; ++run) {
      x4[run] = load<FourFloats>(&x_tile[depth][own_element<T::kEdge, T::kRunsX>(of_x, run * 4)]);
    }
    WEFT_UNROLL for (int run = 0; run < T::kRunsW; ++run) {
      w4[run] = load<FourFloats>(&w_tile[depth][own_element<T::kEdge, T::kRunsW>(of_w, run * 4)]);
    }
    WEFT_UNROLL for (int i = 0; i < 4 * T::kRunsX; ++i) {
      WEFT_UNROLL for (int j = 0; j < 4 * T::kRunsW; ++j) {
        sum[i][j] = fmaf(x4[i / 4].x[i % 4], w4[j / 4].x[j % 4], sum[i][j]);
      }
    }
  }
}

// Blocks along x for tiles of x's rows, along y for tiles of each w's. Units are brought while
// those before them are multiplied.
template <class T>
__global__ void __launch_bounds__(T::kThreads, 2) multiply_tiles(TileCall call) {
  __shared__ __align__(16) typename T::Tile x_tile[2];
  __shared__ __align__(16) typename T::Tile w_tile[2];
  int32_t block = static_cast<int32_t>(blockIdx.y), index = 0;
  while (block >= call.blocks[index]) block -= call.blocks[index++];
  const Product& product = call.products[index];
  const MatrixView w = product.w;
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % T::kEdge, depth = thread / T::kEdge * kUnit;
  const int32_t first_x = static_cast<int32_t>(blockIdx.x) * T::kEdge, first_w = block * T::kEdge;
  Units units;
  float sum[4 * T::kRunsX][4 * T::kRunsW] = {};
  bring_units(call, w, first_x + column, first_w + column, depth / kUnit, units);
  for (int32_t begin = 0, buffer = 0; begin < w.in; begin += kDepth, buffer = 1 - buffer) {
    put_unit(x_tile[buffer], depth, column, units.x);
    put_unit(w_tile[buffer], depth, column, units.w);
    __syncthreads();
    bring_units(call, w, first_x + column, first_w + column, (begin + kDepth + depth) / kUnit,
                units);
    add_tile<T>(x_tile[buffer], w_tile[buffer], sum);
  }
  const int of_x = thread / T::kThreadsW, of_w = thread % T::kThreadsW;
  WEFT_UNROLL for (int i = 0; i < 4 * T::kRunsX; ++i) {
    const int32_t row = first_x + own_element<T::kEdge, T::kRunsX>(of_x, i);
    WEFT_UNROLL for (int j = 0; j < 4 * T::kRunsW; ++j) {
      const int32_t out = first_w + own_element<T::kEdge, T::kRunsW>(of_w, j);
      if (row < call.rows && out < w.out) {
        product.y[static_cast<int64_t>(row) * w.out + out] = sum[i][j];
      }
    }
  }
}

struct RowsCall {
  MatrixView w;
  const int64_t* indices;
  float* y;
};

// A block for each index.
__global__ void read_each_row(RowsCall call) {
  const int64_t index = call.indices[blockIdx.x];
  const int32_t units = call.w.in / kUnit;
  float* y = call.y + static_cast<int64_t>(blockIdx.x) * call.w.in;
  for (int32_t unit = static_cast<int32_t>(threadIdx.x); unit < units;
       unit += static_cast<int32_t>(blockDim.x)) {
    float v[kUnit] = {};
    if (index >= 0 && index < call.w.out) {
      unit_values(call.w, static_cast<int32_t>(index), unit, v);
    }
    for (int i = 0; i < kUnit; ++i) y[unit * kUnit + i] = v[i];
  }
}

template <class T>
int64_t tiles_of(std::span<const Product> products, int64_t rows) {
  int64_t tiles = 0;
  for (const Product& product : products) tiles += blocks_of(product.w.out, T::kEdge);
  return tiles * blocks_of(rows, T::kEdge);
}

template <class T>
void launch_tiles(std::span<const Product> products, const float* x, int64_t rows) {
  TileCall call = {};
  unsigned blocks = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const unsigned own = blocks_of(products[i].w.out, T::kEdge);
    call.products[i] = products[i];
    call.blocks[i] = static_cast<int32_t>(own);
    blocks += own;
  }
  call.x = x;
  call.rows = static_cast<int32_t>(rows);
  launch(multiply_tiles<T>, dim3(blocks_of(rows, T::kEdge), blocks), T::kThreads, call);
}

}  // namespace

void multiply(std::span<const Product> products, const float* x, int64_t rows) {
  const bool fits = !products.empty() && products.size() <= kMostProducts &&
                    std::all_of(products.begin(), products.end(), [&](const Product& each) {
                      return each.w.in == products.front().w.in;
                    });
  core::check<core::ShapeError>(fits, "cuda.multiply: ", products.size(),
                                " products, expected 1 to ", kMostProducts,
                                " with one number of columns");
  if (rows == 0) return;
  if (rows <= kFewRows) return multiply_few_rows(products, x, rows);
  if (tiles_of<LargeTiling>(products, rows) >= kManyTiles) {
    return launch_tiles<LargeTiling>(products, x, rows);
  }
  launch_tiles<SmallTiling>(products, x, rows);
}

void read_rows(const MatrixView& w, const int64_t* indices, int64_t count, float* y) {
  constexpr unsigned kThreads = 128;
  if (count == 0) return;
  launch(read_each_row, dim3(static_cast<unsigned>(count)), kThreads, RowsCall{w, indices, y});
}

}  // namespace weft::cuda
