#pragma once

namespace weft::models {

/// What a model adds that can be trained with the same bits on any number of ranks.
class TrainsExactly {
 public:
  virtual ~TrainsExactly() = default;
  /// From here on a pass over a TokenBatch of one sequence, its loss_sum (then float64) and all
  /// gradients have bits that depend neither on the number of ranks, 1 to kMostExactRanks, nor on
  /// threads: sums over what ranks share go by shard::SumOrder, with the products of
  /// nn/ordered. Parameters are float32. Not collective. Throws ConfigError for a model that has
  /// what these know no order of, for weights that are not dense, and for more ranks.
  virtual void train_exactly() = 0;
};

}  // namespace weft::models
