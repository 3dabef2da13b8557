#include <algorithm>

#include "weft/core/error.h"
#include "weft/cuda/launch.h"
#include "weft/cuda/multiply.h"
#include "weft/cuda/warp.h"

namespace weft::cuda {
namespace {

constexpr int kWarps = 4;
// Edge of a tile of y, and columns that are taken at a time: each of the kTileThreads brings one
// unit of x and one of w, and computes kOwn x kOwn elements of y.
constexpr int kTile = 64, kDepth = 32, kTileThreads = 256, kOwn = 4;
// Rows of tiles in shared memory are a multiple of 16 bytes apart, and not one of all banks.
constexpr int kTileStride = kTile + 4;

struct FewCall {
  Product products[kMostProducts];
  int32_t count;
  const float* x;
  int32_t rows;
};

// A warp for each row of each w; blocks along y for runs of kRows rows of x.
template <int kRows>
__global__ void multiply_few(FewCall call) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kLanes;
  int32_t out =
      static_cast<int32_t>(blockIdx.x) * kWarps + static_cast<int32_t>(threadIdx.x) / kLanes;
  int32_t index = 0;
  while (index < call.count && out >= call.products[index].w.out) {
    out -= call.products[index].w.out;
    ++index;
  }
  if (index == call.count) return;
  const Product& product = call.products[index];
  const int32_t first = static_cast<int32_t>(blockIdx.y) * kRows;
  const float* x[kRows];
  float sum[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    // Rows beyond the last are computed as the last and not written.
    const int32_t row = min(first + r, call.rows - 1);
    x[r] = call.x + static_cast<int64_t>(row) * product.w.in;
    sum[r] = 0;
  }
  add_lane<kRows>(product.w, out, lane, x, sum);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float total = warp_sum(sum[r]);
    if (lane == 0 && first + r < call.rows) {
      product.y[static_cast<int64_t>(first + r) * product.w.out + out] = total;
    }
  }
}

struct TileCall {
  Product product;
  const float* x;
  int32_t rows;
};

// Puts a unit of numbers as a column's part: number i to row `depth + i`.
__device__ void put_unit(float (*tile)[kTileStride], int depth, int column,
                         const float (&v)[kUnit]) {
  for (int i = 0; i < kUnit; ++i) tile[depth + i][column] = v[i];
}

// Blocks along x for tiles of x's rows, along y for tiles of w's.
__global__ void multiply_tiles(TileCall call) {
  __shared__ __align__(16) float x_tile[kDepth][kTileStride];
  __shared__ __align__(16) float w_tile[kDepth][kTileStride];
  constexpr int kUnits = kDepth / kUnit;
  const MatrixView& w = call.product.w;
  const int thread = static_cast<int>(threadIdx.x);
  const int unit_of_tile = thread % kUnits, column = thread / kUnits;
  const int32_t x_row = static_cast<int32_t>(blockIdx.x) * kTile + column;
  const int32_t w_row = static_cast<int32_t>(blockIdx.y) * kTile + column;
  const int32_t units = w.in / kUnit;
  const int own_x = thread / (kTile / kOwn) * kOwn, own_w = thread % (kTile / kOwn) * kOwn;
  float sum[kOwn][kOwn] = {};
  for (int32_t begin = 0; begin < units; begin += kUnits) {
    const int32_t unit = begin + unit_of_tile;
    float a[kUnit] = {}, b[kUnit] = {};
    if (unit < units && x_row < call.rows) {
      read_unit<Dtype::kF32>(reinterpret_cast<const uint8_t*>(
                                       call.x + static_cast<int64_t>(x_row) * w.in + unit * kUnit),
                                   a);
    }
    if (unit < units && w_row < w.out) unit_values(w, w_row, unit, b);
    put_unit(x_tile, unit_of_tile * kUnit, column, a);
    put_unit(w_tile, unit_of_tile * kUnit, column, b);
    __syncthreads();
    for (int depth = 0; depth < kDepth; ++depth) {
      const auto x4 = load<FourFloats>(&x_tile[depth][own_x]);
      const auto w4 = load<FourFloats>(&w_tile[depth][own_w]);
      for (int i = 0; i < kOwn; ++i) {
        for (int j = 0; j < kOwn; ++j) sum[i][j] = fmaf(x4.x[i], w4.x[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kOwn; ++i) {
    for (int j = 0; j < kOwn; ++j) {
      const int32_t row = static_cast<int32_t>(blockIdx.x) * kTile + own_x + i;
      const int32_t out = static_cast<int32_t>(blockIdx.y) * kTile + own_w + j;
      if (row < call.rows && out < w.out) {
        call.product.y[static_cast<int64_t>(row) * w.out + out] = sum[i][j];
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

template <int kRows>
void launch_few(const FewCall& call, int64_t outs) {
  launch(multiply_few<kRows>, dim3(blocks_of(outs, kWarps), blocks_of(call.rows, kRows)),
         kWarps * kLanes, call);
}

void launch_tiles(const Product& product, const float* x, int64_t rows) {
  launch(multiply_tiles, dim3(blocks_of(rows, kTile), blocks_of(product.w.out, kTile)),
         kTileThreads, TileCall{product, x, static_cast<int32_t>(rows)});
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
  if (rows > kFewRows) {
    for (const Product& product : products) launch_tiles(product, x, rows);
    return;
  }
  FewCall call = {};
  int64_t outs = 0;
  for (const Product& product : products) {
    call.products[call.count++] = product;
    outs += product.w.out;
  }
  call.x = x;
  call.rows = static_cast<int32_t>(rows);
  if (rows == 1) {
    launch_few<1>(call, outs);
  } else if (rows <= 4) {
    launch_few<4>(call, outs);
  } else {
    launch_few<8>(call, outs);
  }
}

void read_rows(const MatrixView& w, const int64_t* indices, int64_t count, float* y) {
  constexpr unsigned kThreads = 128;
  if (count == 0) return;
  launch(read_each_row, dim3(static_cast<unsigned>(count)), kThreads, RowsCall{w, indices, y});
}

}  // namespace weft::cuda
