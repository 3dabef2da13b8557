#pragma once

#include "weft/cuda/kernels/arithmetic.h"
#include "weft/cuda/kernels/experts/experts.h"

/// What the kernels of experts share; for this folder alone.
namespace weft::cuda {

/// compute_hidden of few rows.
struct HiddenCall {
  /// gate and up.
  ExpertMatrices matrices[2];
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  Gating gating;
  const float* x = nullptr;
  const int32_t* row_of_slot = nullptr;
  const ExpertTile* tiles = nullptr;
  float* hidden = nullptr;
};
/// Does so, gate and up in one sweep.
void hidden_of_few(const HiddenCall& call, const ExpertRows& rows);

/// A product of the rows x, one for each slot.
struct ProductCall {
  ExpertMatrices matrices[1];
  const float* x = nullptr;
  const ExpertTile* tiles = nullptr;
  float* y = nullptr;
};
/// Does so.
void products_of_few(const ProductCall& call, const ExpertRows& rows);

/// Products of tiles of kTileRows.
struct TilesCall {
  ExpertMatrices matrices[2];
  float* y[2] = {};
  int32_t num_products = 1;
  const float* x = nullptr;
  /// Null: a slot's row has its number.
  const int32_t* row_of_slot = nullptr;
  const ExpertTile* tiles = nullptr;
};
/// Does so, through tiles of kTileRows rows.
void products_of_tiles(const TilesCall& call, int32_t tiles);

/// An expert's matrix among such that are alike: all but where it is needs no waiting.
WEFT_BOTH MatrixView own_matrix(const ExpertMatrices& matrices, int32_t expert) {
  MatrixView w = matrices.form;
  const MatrixView& own = matrices.all[expert];
  w.data = own.data;
  w.scales = own.scales;
  w.offsets = own.offsets;
  return w;
}

}  // namespace weft::cuda
