#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "weft/models/config/config.h"
#include "weft/models/load/weight_source.h"
#include "weft/models/model.h"
#include "weft/nn/attention/rope.h"

namespace weft::models {

/// Rope's angles for the passes of one decoder.
class PositionAngles {
 public:
  /// Throws ConfigError for numbers of rope that make no angles.
  PositionAngles(const ModelConfig& config, const WeightSource& source);

  /// Of `tokens` positions from `start` on, for a token at a time out of what was computed for its
  /// neighbours. Throws ShapeError beyond the configuration's positions.
  nn::RopeAngles near(int64_t start, int64_t tokens);
  /// Of one token of each of several sequences, which stand at these positions: the same numbers
  /// as near gives for each. Throws as near.
  nn::RopeAngles each(std::span<const int64_t> positions);
  /// Of a batch's positions, or of its rows' where it says none. Throws as near.
  nn::RopeAngles of(const TokenBatch& batch) const;

 private:
  nn::Rope rope_;
  /// With dynamic scaling a position's angles are others in a longer sequence.
  bool depend_on_length_;
  /// Of runs of neighbouring positions, by their first.
  std::map<int64_t, nn::RopeAngles> near_;
};

}  // namespace weft::models
