#pragma once

#include <cstdint>

#include "weft/models/config/config.h"
#include "weft/models/load/plan.h"

namespace weft::models {

/// What a model adds that can be trained with the same bits on any number of ranks.
class TrainsExactly {
 public:
  virtual ~TrainsExactly() = default;
  /// From here on a pass over a TokenBatch, its loss_sum and all gradients have bits that depend
  /// neither on the number of ranks, 1 to kMostExactRanks, nor on threads: sums over what ranks
  /// share go by shard::SumOrder, with the products of nn/ordered. loss_sum gives each sequence's,
  /// float64 [B]. Gradients of a batch's sequences are added by TokenBatch::order. Parameters are
  /// float32. Not collective. Throws ConfigError as check_trains_exactly, and for weights that are
  /// not dense.
  virtual void train_exactly() = 0;
};

/// Throws ConfigError, "models: training with the same bits …", for a model that is not trained so
/// on so many ranks: for options that exact training does not know, and for more than
/// kMostExactRanks. Not collective.
void check_trains_exactly(const ModelConfig& config, int64_t ranks);
/// The same of a model that is read by a plan; also for weights that are not stored as plain
/// numbers.
void check_trains_exactly(const ModelConfig& config, const LoadPlan& plan);

}  // namespace weft::models
