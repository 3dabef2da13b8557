#pragma once

#include <string>

#include "weft/train/checkpoint/writer.h"
#include "weft/train/trainer/trainer.h"

namespace weft::train {

/// Refuses a run that would write over another's checkpoints, and one that is to be resumed and has
/// none. Throws ConfigError; FormatError, IoError.
void check_run_folder(const TrainConfig& config, bool resumes);

/// The checkpoints of one run: masters, optimizer state, how far it is, and its configuration.
class RunCheckpoints {
 public:
  /// `trainer` outlives this. Not collective.
  explicit RunCheckpoints(Trainer& trainer);

  /// Saves the trainer as it is. Collective; throws as CheckpointWriter::begin.
  void save();
  /// Waits until what was saved is on disk. Collective.
  void finish() { writer_.finish(); }
  /// Puts the newest checkpoint into the trainer, whatever mesh wrote it. Collective. Throws on all
  /// ranks alike: FormatError, IoError; ConfigError if the data are others than the run's.
  void load_newest();

 private:
  Trainer& trainer_;
  CheckpointWriter writer_;
};

}  // namespace weft::train
