#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/train/data/packing.h"
#include "weft/train/data/sample_order.h"

namespace weft::train {

/// Samples as arrays of [count, length], row-major: see SequenceSpans.
struct Rows {
  int64_t count = 0;
  int64_t length = 0;
  std::vector<int64_t> ids;
  std::vector<int64_t> targets;
  std::vector<int64_t> documents;
  std::vector<int64_t> positions;
  /// Targets that are not ignored.
  int64_t num_targets = 0;
};

/// The samples of a run, in the order of SampleOrder. Equal on every rank and mesh that has the
/// same store, options and seed: a rank of the batch axes fills its own rows of a step's samples.
class Batches {
 public:
  /// Shuffled, for training. Throws as Packer.
  Batches(std::shared_ptr<const TokenStore> store, PackOptions options, shard::Range range,
          uint64_t seed);
  /// In the store's order, for evaluation. Throws as Packer.
  Batches(std::shared_ptr<const TokenStore> store, PackOptions options, shard::Range range);

  /// Samples of one epoch.
  int64_t num_sequences() const { return packer_.num_sequences(); }
  const Packer& packer() const { return packer_; }
  /// The samples [first, first + count) of the run; past an epoch's end come the next one's. Throws
  /// ConfigError for a negative number, FormatError as Packer::fill.
  void fill(int64_t first, int64_t count, Rows& out) const;

 private:
  Packer packer_;
  SampleOrder order_;
};

}  // namespace weft::train
