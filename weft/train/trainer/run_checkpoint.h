#pragma once

#include <string>
#include <vector>

#include "weft/train/checkpoint/writer.h"
#include "weft/train/trainer/run_start.h"
#include "weft/train/trainer/trainer.h"

namespace weft::train {

/// The checkpoints of one run: masters, optimizer state, how far it is, and its configuration.
class RunCheckpoints {
 public:
  /// `trainer` outlives this. Not collective.
  explicit RunCheckpoints(Trainer& trainer);

  /// Saves the trainer as it is. Collective; throws as CheckpointWriter::begin.
  void save();
  /// True if this rank's part of what was saved is on disk: TrainerHooks::has_written.
  bool has_written() const { return writer_.has_written(); }
  /// Waits until what was saved is on disk. Collective.
  void finish() { writer_.finish(); }
  /// Puts the checkpoint that `start` asks for into the trainer, whatever mesh wrote it, and sets
  /// newer ones aside; for a new run nothing. Returns what people should know of it, a line each.
  /// Collective; rank 0's view of the folder counts. Throws on all ranks alike: FormatError,
  /// IoError; ConfigError where the folder does not fit `start`, if the data are others than the
  /// run's, or if the configuration changes what a run keeps (changed_fields).
  std::vector<std::string> load(const RunStart& start);

 private:
  std::vector<std::string> load_from(const std::string& folder);
  std::vector<std::string> set_aside_newer();

  Trainer& trainer_;
  CheckpointWriter writer_;
};

}  // namespace weft::train
