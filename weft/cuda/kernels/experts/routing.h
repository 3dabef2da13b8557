#pragma once

#include <cstdint>

#include "weft/cuda/kernels/arithmetic.h"

namespace weft::cuda {

/// The most experts of a layer that routing takes.
inline constexpr int64_t kMostExperts = 1024;

/// Rows of one expert that a product takes together: slots from `first` on. Without any: nothing is
/// to be done.
struct ExpertTile {
  /// The expert's place among those that this GPU holds.
  int32_t expert = 0;
  int32_t first = 0;
  int32_t count = 0;
};

/// Which experts each row of a pass takes, and the rows of each expert together: all pointers into
/// the GPU's memory. A pair is one of the top_k experts of a row, number row * top_k + i; the pairs
/// whose expert this GPU holds have slots, those of one expert side by side.
struct RoutingCall {
  /// [rows, num_experts], without bias; overwritten.
  float* logits = nullptr;
  /// [num_experts], added to logits; to scores for the choice alone; what weights are multiplied by
  /// in the end. Null: nothing.
  const float* router_bias = nullptr;
  const float* choice_bias = nullptr;
  const float* factors = nullptr;
  /// [num_experts]: of each, its place among those that this GPU holds; -1: it is elsewhere.
  const int32_t* places = nullptr;
  /// [rows, num_experts], for the scores.
  float* scores = nullptr;
  /// Of each pair, in each row by ascending number of the expert: that number, the weight, and the
  /// slot; -1: the expert is elsewhere.
  int32_t* chosen = nullptr;
  float* weights = nullptr;
  int32_t* slots = nullptr;
  /// Of each slot, its row; room for all pairs.
  int32_t* row_of_slot = nullptr;
  /// [num_tiles()].
  ExpertTile* tiles = nullptr;
  int32_t rows = 0;
  int32_t num_experts = 0;
  int32_t num_held = 0;
  int32_t top_k = 1;
  /// The most rows of a tile. With 1, a pair's slot has its number, and tile i is slot i.
  int32_t tile_rows = 1;
  /// As nn::RoutingOptions has them.
  int32_t num_groups = 1;
  int32_t groups_per_token = 1;
  int32_t best_of_group = 2;
  bool normalizes = true;
  bool has_sigmoids = false;
  float scale = 1;

  WEFT_BOTH int32_t num_pairs() const { return rows * top_k; }
  /// How many tiles there are at most, whatever the rows choose.
  WEFT_BOTH int32_t num_tiles() const {
    if (tile_rows == 1) return num_pairs();
    return (num_pairs() < num_held ? num_pairs() : num_held) + num_pairs() / tile_rows;
  }
};

/// A row takes the experts with the largest logits, the first of equal ones, with their softmax as
/// weights; or as the options say. What is no number counts as the least, and makes weights that
/// are none. A row's choice and weights don't depend on the rows beside it. The caller sees to it
/// that there are at most kMostExperts, and at least top_k of them. Sources: Shazeer et al. 2017,
/// arXiv:1701.06538; groups: DeepSeek-V3, arXiv:2412.19437.
void route(const RoutingCall& call);

}  // namespace weft::cuda
