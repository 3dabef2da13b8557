#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "weft/core/files/atomic_folder.h"
#include "weft/dist/group.h"
#include "weft/train/optimizer/optimizer.h"

namespace weft::train {

/// What is saved of one rank at a step.
struct CheckpointContent {
  int64_t step = 0;
  /// Optimizer::state(): together all ranks' have every element of every whole.
  std::vector<StateTensor> tensors;
  /// The text of one JSON value, of rank 0: counts, random states, data position, configuration.
  std::string trainer = "null";
};

/// How a run keeps its checkpoints.
struct CheckpointOptions {
  /// Complete ones that stay; at least 1.
  int64_t keep = 2;
  /// Copy the tensors and write them while training continues.
  bool in_background = false;
};

/// Saves checkpoints of a run to RUN/checkpoints/step-000100: of each rank a file of what it owns,
/// then a manifest of all. They are written to a folder beside, put on disk and renamed, so that at
/// any moment every folder with that name is complete; what a crash leaves has another name and
/// goes at the next save.
class CheckpointWriter {
 public:
  /// `group` has all ranks of the run, and all see `run`. Not collective.
  CheckpointWriter(std::string run, CheckpointOptions options, const dist::Group& group);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  /// What was begun and not finished goes.
  ~CheckpointWriter() = default;

  /// Finishes the one before and begins one; a complete one of the same step is replaced. Returns
  /// when the tensors may change: in the background, when they are copied. Collective over the
  /// group; throws on all ranks alike: IoError (disk full, permission) leaves the older ones whole.
  void begin(const CheckpointContent& content);
  /// True if something was begun and this rank has written its part of it, or failed to: finish()
  /// will not wait for this rank. Not collective.
  bool has_written() const;
  /// Waits until a save that has begun is complete on disk, then removes the oldest beyond `keep`;
  /// without one nothing. Collective, throws as begin.
  void finish();

 private:
  void commit(const std::vector<std::string>& parts);

  std::string run_;
  CheckpointOptions options_;
  dist::Group group_;
  // Rank 0's.
  std::optional<core::AtomicFolder> folder_;
  // Gives this rank's part of the manifest. Behind folder_, so that it ends before that goes.
  std::future<std::string> written_;
};

/// One checkpoint, complete on disk when this returns. Collective over `group`; throws as
/// CheckpointWriter::begin.
void save_checkpoint(const std::string& run, const CheckpointContent& content, int64_t keep,
                     const dist::Group& group);

}  // namespace weft::train
