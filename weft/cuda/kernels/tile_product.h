#pragma once

#include <algorithm>
#include <span>

#include "weft/cuda/kernels/multiply.h"
#include "weft/cuda/kernels/units.h"

/// Products of many rows, tile by tile, on tensor cores: for this folder, and for benchmarks that
/// compare tilings and numbers of parts.
namespace weft::cuda {

/// How a block's warps share a tile of y: kWarpsX x kWarpsW of them, each with kRunsX x kRunsW runs
/// of 16 rows of x and of w. kBlocks of them should fit a multiprocessor.
template <int kWarpsX, int kWarpsW, int kRunsX, int kRunsW, int kBlocks>
struct Tiling {
  static constexpr int kOfX = kRunsX, kOfW = kRunsW;
  static constexpr int kAcross = kWarpsW;
  static constexpr int kRowsX = kWarpsX * kRunsX * 16, kRowsW = kWarpsW * kRunsW * 16;
  static constexpr int kThreads = kWarpsX * kWarpsW * kLanes;
  static constexpr int kBlocksAtOnce = kBlocks;
};
using LargeTiling = Tiling<2, 4, 4, 2, 1>;
using SmallTiling = Tiling<2, 2, 2, 2, 3>;

/// Products of one form and of one number of columns with their rows x [rows, in].
struct TileCall {
  Product products[kMostProducts];
  /// Tiles of w of each product.
  int32_t blocks[kMostProducts];
  const float* x;
  int32_t rows;
};

/// What a block multiplies at a time: the columns of kUnitsOfTile units.
template <class T, int kPartsX, int kPartsW>
struct Tiles {
  HalfUnit x[kPartsX][T::kRowsX * kUnitsOfTile];
  HalfUnit w[kPartsW][T::kRowsW * kUnitsOfTile];
};

/// The rows of a matrix that a tile has side by side: from `first` on, those before `end`.
struct RowRun {
  int32_t first, end;
  /// The tile's row `own`; -1 beyond the last.
  __device__ int32_t operator()(int32_t own) const { return first + own < end ? first + own : -1; }
};

/// A thread's units of a tile's rows on their way to shared memory: rows are kStep apart.
template <class Unit, int kRows, int kThreads>
struct Carried {
  static constexpr int kStep = kThreads / kUnitsOfTile, kCount = kRows / kStep;
  static_assert(kCount * kStep == kRows);
  Unit units[kCount];
  int32_t rows[kCount];

  /// row_of: as RowRun.
  template <class RowOf>
  __device__ explicit Carried(const RowOf& row_of) {
    WEFT_UNROLL for (int i = 0; i < kCount; ++i) {
      rows[i] = row_of(static_cast<int32_t>(threadIdx.x) / kUnitsOfTile + i * kStep);
    }
  }
  /// Of the tile whose columns begin at unit `first`; zeros beyond the matrix.
  __device__ void load(const MatrixView& m, int32_t first) {
    const int32_t unit = first + static_cast<int32_t>(threadIdx.x) % kUnitsOfTile;
    const int32_t group = unit / m.units_per_group;
    WEFT_UNROLL for (int i = 0; i < kCount; ++i) {
      units[i] = {};
      if (rows[i] >= 0 && unit < m.in / kUnit) units[i].load(m, rows[i], unit, group);
    }
  }
  template <int kParts>
  __device__ void put(const MatrixView& m, HalfUnit (&tile)[kParts][kRows * kUnitsOfTile]) const {
    const int thread = static_cast<int>(threadIdx.x);
    WEFT_UNROLL for (int i = 0; i < kCount; ++i) {
      HalfUnit parts[kParts];
      units[i].split(m, parts);
      const int row = thread / kUnitsOfTile + i * kStep;
      WEFT_UNROLL for (int part = 0; part < kParts; ++part) {
        tile[part][place_in_tile(row, thread % kUnitsOfTile)] = parts[part];
      }
    }
  }
};

/// A warp's share of a tile of y.
template <class T>
struct WarpSums {
  Sums of[T::kOfX][T::kOfW][2] = {};
};

/// Adds the products of two units of columns. Parts are multiplied with all parts that do not make
/// both of them small; the smallest products come first.
template <class T, int kPartsX, int kPartsW>
__device__ void add_units(const Tiles<T, kPartsX, kPartsW>& tiles, int unit, WarpSums<T>& sums) {
  constexpr int kParts = kPartsX > kPartsW ? kPartsX : kPartsW;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int first_x = warp / T::kAcross * T::kOfX * 16, first_w = warp % T::kAcross * T::kOfW * 16;
  Fragment x[kPartsX][T::kOfX];
  WEFT_UNROLL for (int part = 0; part < kPartsX; ++part) {
    WEFT_UNROLL for (int i = 0; i < T::kOfX; ++i) {
      x[part][i] = load_fragment(tiles.x[part], first_x + i * 16, unit);
    }
  }
  WEFT_UNROLL for (int j = 0; j < T::kOfW; ++j) {
    Fragment w[kPartsW];
    WEFT_UNROLL for (int part = 0; part < kPartsW; ++part) {
      w[part] = load_fragment(tiles.w[part], first_w + j * 16, unit);
    }
    Sums own[T::kOfX][2] = {};
    WEFT_UNROLL for (int both = kParts - 1; both >= 0; --both) {
      WEFT_UNROLL for (int of_x = 0; of_x <= both; ++of_x) {
        const int of_w = both - of_x;
        if (of_x >= kPartsX || of_w >= kPartsW) continue;
        WEFT_UNROLL for (int i = 0; i < T::kOfX; ++i) {
          WEFT_UNROLL for (int half = 0; half < 2; ++half) {
            own[i][half] = multiply_add(x[of_x][i], w[of_w], half, own[i][half]);
          }
        }
      }
    }
    WEFT_UNROLL for (int i = 0; i < T::kOfX; ++i) {
      WEFT_UNROLL for (int half = 0; half < 2; ++half) {
        WEFT_UNROLL for (int k = 0; k < 4; ++k) sums.of[i][j][half].x[k] += own[i][half].x[k];
      }
    }
  }
}

/// Writes what lies within y of the tile that begins at row `first_x` and at `first_w` of w.
template <class T>
__device__ void write_sums(const WarpSums<T>& sums, const Product& product, int32_t rows,
                           int32_t first_x, int32_t first_w) {
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kLanes;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kLanes;
  first_x += warp / T::kAcross * T::kOfX * 16 + lane / 4;
  first_w += warp % T::kAcross * T::kOfW * 16 + lane % 4 * 2;
  WEFT_UNROLL for (int i = 0; i < T::kOfX; ++i) {
    WEFT_UNROLL for (int j = 0; j < T::kOfW * 2; ++j) {
      WEFT_UNROLL for (int k = 0; k < 4; ++k) {
        const int32_t row = first_x + i * 16 + k / 2 * 8, out = first_w + j * 8 + k % 2;
        if (row < rows && out < product.w.out) {
          product.y[static_cast<int64_t>(row) * product.w.out + out] =
              sums.of[i][j / 2][j % 2].x[k];
        }
      }
    }
  }
}

/// A matrix of float32 [*, in] whose rows are read as RowOf says.
template <class RowOf>
struct TileRows {
  const float* x;
  RowOf row_of;
};

/// The sums of a tile of y: rows of x times rows of w. A tile is brought while the one before is
/// multiplied; while that is put, other warps still multiply. All threads of the block call it; it
/// takes the launched memory for two Tiles.
template <class Unit, class T, int kPartsX, int kPartsW, class RowOf>
__device__ void sum_tile(const TileRows<RowOf>& rows, const MatrixView& w, const RowRun& rows_of_w,
                         WarpSums<T>& sums) {
  using Both = Tiles<T, kPartsX, kPartsW>;
  Both* tiles = launched_memory<Both[2]>();
  MatrixView x;
  x.data = reinterpret_cast<const uint8_t*>(rows.x);
  x.in = w.in;
  Carried<NumberUnit<Dtype::kF32>, T::kRowsX, T::kThreads> of_x(rows.row_of);
  Carried<Unit, T::kRowsW, T::kThreads> of_w(rows_of_w);
  of_x.load(x, 0);
  of_w.load(w, 0);
  for (int32_t first = 0, buffer = 0; first < w.in / kUnit; first += kUnitsOfTile) {
    of_x.put(x, tiles[buffer].x);
    of_w.put(w, tiles[buffer].w);
    of_x.load(x, first + kUnitsOfTile);
    of_w.load(w, first + kUnitsOfTile);
    __syncthreads();
    WEFT_ROLL for (int unit = 0; unit < kUnitsOfTile; unit += 2) {
      add_units<T, kPartsX, kPartsW>(tiles[buffer], unit, sums);
    }
    buffer = 1 - buffer;
  }
}

/// Blocks along x for tiles of x's rows, along y for tiles of each w's.
template <class Unit, class T, int kPartsX, int kPartsW>
__global__ void __launch_bounds__(T::kThreads, T::kBlocksAtOnce) multiply_tiles(TileCall call) {
  int32_t block = static_cast<int32_t>(blockIdx.y), index = 0;
  while (block >= call.blocks[index]) block -= call.blocks[index++];
  const Product& product = call.products[index];
  const MatrixView w = product.w;
  const int32_t first_x = static_cast<int32_t>(blockIdx.x) * T::kRowsX, first_w = block * T::kRowsW;
  WarpSums<T> sums;
  sum_tile<Unit, T, kPartsX, kPartsW>(TileRows<RowRun>{call.x, {first_x, call.rows}}, w,
                                      {first_w, w.out}, sums);
  write_sums(sums, product, call.rows, first_x, first_w);
}

/// Begins it for products of one form and all their rows.
template <class Unit, class T, int kPartsX>
void launch_tiles(std::span<const Product> products, const float* x, int64_t rows) {
  constexpr int kPartsW = Unit::kExactParts < kPartsX ? Unit::kExactParts : kPartsX;
  TileCall call = {};
  unsigned blocks = 0;
  for (size_t i = 0; i < products.size(); ++i) {
    const unsigned own = blocks_of(products[i].w.out, T::kRowsW);
    call.products[i] = products[i];
    call.blocks[i] = static_cast<int32_t>(own);
    blocks += own;
  }
  call.x = x;
  call.rows = static_cast<int32_t>(rows);
  launch(multiply_tiles<Unit, T, kPartsX, kPartsW>, dim3(blocks_of(rows, T::kRowsX), blocks),
         T::kThreads, call, sizeof(Tiles<T, kPartsX, kPartsW>[2]));
}

}  // namespace weft::cuda
