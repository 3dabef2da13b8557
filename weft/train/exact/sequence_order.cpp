#include "weft/train/exact/sequence_order.h"

#include <vector>

#include "weft/core/error.h"

namespace weft::train {

shard::Layout sequence_layout(int64_t sequences, int64_t ranks) {
  core::check<core::ConfigError>(sequences >= 1 && ranks >= 1 && sequences % ranks == 0,
                                 "train.exact: ", sequences, " sequences of a step over ", ranks,
                                 " data ranks, expected a multiple of them");
  return shard::contiguous_layout(
      0, std::vector<int64_t>(static_cast<size_t>(ranks), sequences / ranks));
}

shard::SumOrder sequence_order(int64_t sequences) {
  std::vector<shard::Layout> cuts = {sequence_layout(sequences, 1)};
  for (int64_t ranks = 2; ranks <= sequences; ++ranks) {
    if (sequences % ranks == 0) cuts.push_back(sequence_layout(sequences, ranks));
  }
  return shard::SumOrder(cuts);
}

}  // namespace weft::train
