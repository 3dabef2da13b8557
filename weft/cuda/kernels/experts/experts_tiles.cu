#include "weft/cuda/kernels/experts/experts_parts.h"
#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/tile_product.h"

namespace weft::cuda {
namespace {

using ExpertTiling = Tiling<2, 2, 1, 4, 3>;
static_assert(ExpertTiling::kRowsX == kTileRows);
// Of each number of x, as in products of many rows.
constexpr int kPartsOfX = 2;

// A unit of any matrix, for experts that differ in form.
struct AnyUnit {
  static constexpr int kExactParts = 3;
  float v[kUnit] = {};

  WEFT_BOTH void load(const MatrixView& w, int32_t row, int32_t unit, int32_t /*group*/) {
    unit_values(w, row, unit, v);
  }
  template <int kParts>
  WEFT_BOTH void split(const MatrixView& /*w*/, HalfUnit (&parts)[kParts]) const {
    float own[kUnit];
    WEFT_UNROLL for (int i = 0; i < kUnit; ++i) own[i] = v[i];
    split_unit(own, parts);
  }
};

// The rows of x that an expert's tile takes.
struct SlotRows {
  ExpertTile tile;
  // Null: slots are rows.
  const int32_t* row_of_slot;
  __device__ int32_t operator()(int32_t own) const {
    if (own >= tile.count) return -1;
    const int32_t slot = tile.first + own;
    return row_of_slot == nullptr ? slot : row_of_slot[slot];
  }
};

// Blocks along x for tiles, so that those of one expert run together, along y for the rows of each
// w.
template <class Unit, class T, int kPartsW>
__global__ void __launch_bounds__(T::kThreads, T::kBlocksAtOnce) multiply_experts(TilesCall call) {
  const ExpertTile tile = call.tiles[blockIdx.x];
  if (tile.count == 0) return;
  const int32_t block = static_cast<int32_t>(blockIdx.y);
  const int32_t of_first = (call.matrices[0].form.out + T::kRowsW - 1) / T::kRowsW;
  const int32_t index = block < of_first ? 0 : 1;
  const MatrixView w = call.matrices[index].all[tile.expert];
  const int32_t first_w = (block - index * of_first) * T::kRowsW;
  WarpSums<T> sums;
  sum_tile<Unit, T, kPartsOfX, kPartsW>(TileRows<SlotRows>{call.x, {tile, call.row_of_slot}}, w,
                                        {first_w, w.out}, sums);
  const Product own = {w, call.y[index] + static_cast<int64_t>(tile.first) * w.out};
  write_sums(sums, own, tile.count, 0, first_w);
}

template <class Unit>
void launch_experts(const TilesCall& call, int32_t tiles) {
  using T = ExpertTiling;
  constexpr int kPartsW = Unit::kExactParts < kPartsOfX ? Unit::kExactParts : kPartsOfX;
  unsigned blocks = 0;
  for (int32_t i = 0; i < call.num_products; ++i) {
    blocks += blocks_of(call.matrices[i].form.out, T::kRowsW);
  }
  launch(multiply_experts<Unit, T, kPartsW>, dim3(static_cast<unsigned>(tiles), blocks),
         T::kThreads, call, sizeof(Tiles<T, kPartsOfX, kPartsW>[2]));
}

// All matrices that the call multiplies by can be read in the form of the first.
bool have_one_form(const TilesCall& call) {
  const MatrixView& first = call.matrices[0].form;
  for (int32_t i = 0; i < call.num_products; ++i) {
    const MatrixView& own = call.matrices[i].form;
    if (!call.matrices[i].are_alike || own.bits != first.bits || own.numbers != first.numbers) {
      return false;
    }
  }
  return true;
}

}  // namespace

void products_of_tiles(const TilesCall& call, int32_t tiles) {
  if (!have_one_form(call)) return launch_experts<AnyUnit>(call, tiles);
  visit_unit(call.matrices[0].form,
             [&]<class Unit>(const Unit& /*unit*/) { launch_experts<Unit>(call, tiles); });
}

}  // namespace weft::cuda
