#pragma once

#include <cstdint>
#include <span>

#include "weft/cuda/kernels/experts/routing.h"
#include "weft/cuda/kernels/gating.h"
#include "weft/cuda/matrix_view.h"

namespace weft::cuda {

/// One matrix of each expert that this GPU holds, all of one shape.
struct ExpertMatrices {
  /// Of the first expert, for its sizes and form.
  MatrixView form;
  /// [num_held], in the GPU's memory.
  const MatrixView* all = nullptr;
  /// All have the form's bits, kind of numbers and size of quant groups.
  bool are_alike = true;
};

/// The most rows of a tile where an expert has few, and where it has many.
inline constexpr int32_t kFewTileRows = 4, kTileRows = 32;

/// The rows that experts take: slots in tiles (RoutingCall); pointers into the GPU's memory.
struct ExpertRows {
  const ExpertTile* tiles = nullptr;
  int32_t num_tiles = 0;
  /// The most rows of a tile: 1, kFewTileRows or kTileRows.
  int32_t tile_rows = 1;

  bool are_few() const { return tile_rows < kTileRows; }
};

/// y = x w^T for each slot, with the matrix of its expert: y [slots, out].
struct ExpertProduct {
  ExpertMatrices w;
  float* y = nullptr;
};

/// hidden = gated(x gate^T + gate_bias, x up^T + up_bias) of each slot, [slots, ffn].
struct ExpertHidden {
  ExpertMatrices gate, up;
  /// [num_held, ffn]; null: none.
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  Gating gating;
  float* hidden = nullptr;
  /// [slots, ffn], for what is between; not needed where rows are few.
  float* room = nullptr;
};

/// Whether tiles may be of few rows: gate and up are read together then, in one form.
bool can_take_few_rows(const ExpertMatrices& gate, const ExpertMatrices& up,
                       const ExpertMatrices& down);

/// The experts' hidden features of the rows x [rows, in], slot by slot; `row_of_slot` says which.
/// A slot's numbers don't depend on the slots beside it, nor on tile_rows where rows are few: then
/// a weight is read once for each tile, a warp for a few rows of a matrix.
void compute_hidden(const ExpertRows& rows, const ExpertHidden& call, const float* x,
                    const int32_t* row_of_slot);

/// The product of each slot's hidden features [slots, in].
void multiply_hidden(const ExpertRows& rows, const ExpertProduct& product, const float* hidden);

/// A row's sum over what its experts give, in ascending order of the experts, after the shared
/// expert: pointers into the GPU's memory.
struct ExpertSum {
  /// [rows, width], of the shared expert; null: none. May be `sum`.
  const float* shared = nullptr;
  /// [width]; null: none.
  const float* shared_bias = nullptr;
  /// [rows], by whose sigmoid the shared expert counts; null: it counts whole.
  const float* shared_gate = nullptr;
  /// [slots, width].
  const float* y = nullptr;
  /// [num_held, width]; null: none.
  const float* bias = nullptr;
  /// As route() has written them.
  const int32_t* places = nullptr;
  const int32_t* chosen = nullptr;
  const float* weights = nullptr;
  const int32_t* slots = nullptr;
  /// [rows, width].
  float* sum = nullptr;
  int32_t rows = 0;
  int32_t width = 0;
  int32_t top_k = 1;
};
/// Adds up. A slot of -1 adds nothing.
void add_up_experts(const ExpertSum& call);

}  // namespace weft::cuda
