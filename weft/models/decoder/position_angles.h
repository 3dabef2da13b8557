#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "weft/models/config/config.h"
#include "weft/models/load/weight_source.h"
#include "weft/models/model.h"
#include "weft/nn/attention/kv_cache.h"
#include "weft/nn/attention/rope.h"

namespace weft::models {

/// What a pass's layers know of where its tokens stand.
struct LayerAngles {
  nn::RopeAngles all;
  /// Of layers with a window, where theirs are others.
  std::optional<nn::RopeAngles> windowed = std::nullopt;
  /// What queries are multiplied by: float32 [T, 1, 1], or [B, T, 1, 1] for rows with other
  /// positions; undefined: nothing.
  at::Tensor query_factors = {};

  const nn::RopeAngles& of(bool has_window) const {
    return has_window && windowed ? *windowed : all;
  }
  /// Those of one sequence, where each has positions of its own.
  LayerAngles of_row(int64_t row) const;
};

/// The angles of one rope as PositionAngles gives them.
class NearAngles {
 public:
  explicit NearAngles(nn::Rope rope, bool depend_on_length)
      : rope_(std::move(rope)), depend_on_length_(depend_on_length) {}

  const nn::Rope& rope() const { return rope_; }
  nn::RopeAngles near(int64_t start, int64_t tokens);
  nn::RopeAngles each(std::span<const int64_t> positions);
  nn::RopeAngles of(const TokenBatch& batch) const;

 private:
  nn::Rope rope_;
  /// With dynamic scaling a position's angles are others in a longer sequence.
  bool depend_on_length_;
  /// Of runs of neighbouring positions, by their first.
  std::map<int64_t, nn::RopeAngles> near_;
};

/// Where tokens stand that are read behind the positions of caches, one for each; those of a cache
/// that comes several times in a row follow one another. Throws ConfigError where one has no room.
std::vector<int64_t> positions_of(std::span<nn::KvCache* const> caches);

/// Rope's angles for the passes of one decoder.
class PositionAngles {
 public:
  /// Throws ConfigError for numbers of rope that make no angles.
  PositionAngles(const ModelConfig& config, const WeightSource& source);

  /// Of `tokens` positions from `start` on in a sequence that may have `context` of them, for a
  /// token at a time out of what was computed for its neighbours. Throws ShapeError beyond the
  /// configuration's positions.
  LayerAngles near(int64_t start, int64_t tokens, int64_t context);
  /// Of one token of each of several sequences, which stand at these positions, all in the same
  /// context: the same numbers as near gives for each. Throws as near.
  LayerAngles each(std::span<const int64_t> positions, int64_t context);
  /// Of a batch's positions, or of its rows' where it says none. With dynamic scaling each row's
  /// follow its own longest position, whatever rows lie beside it. Throws as near.
  LayerAngles of(const TokenBatch& batch) const;

 private:
  at::Tensor query_factors(const at::Tensor& positions) const;

  // With longrope all positions of a context turn alike: those of a long one otherwise.
  NearAngles& for_context(int64_t context);

  NearAngles all_;
  std::optional<NearAngles> long_;
  std::optional<NearAngles> windowed_;
  double query_growth_;
  double original_positions_;
};

}  // namespace weft::models
