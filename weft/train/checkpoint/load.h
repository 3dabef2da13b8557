#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/dist/group.h"
#include "weft/train/optimizer/optimizer.h"

namespace weft::train {

/// What a checkpoint says beside its tensors.
struct LoadedCheckpoint {
  int64_t step = 0;
  /// CheckpointContent::trainer.
  std::string trainer;
};

/// Fills `wanted` (Optimizer::state()) from the checkpoint in `folder`, which any mesh may have
/// saved: each rank reads what it needs and no more, and all together want every parameter. With
/// `check_hashes` the ranks first read all files once, each some of them, and compare their hashes;
/// sizes are always compared. Collective over `group`. Throws on all ranks alike: FormatError for
/// anything that is missing or differs (parameters, sizes, states, elements, files, versions),
/// IoError; `wanted` may then be filled in part.
LoadedCheckpoint load_checkpoint(const std::string& folder, const std::vector<StateTensor>& wanted,
                                 bool check_hashes, const dist::Group& group);

}  // namespace weft::train
