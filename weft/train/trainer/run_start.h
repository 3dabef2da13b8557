#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/core/files/file_lock.h"
#include "weft/core/json.h"
#include "weft/train/config/train_config.h"

namespace weft::train {

/// Where a run begins.
struct RunStart {
  enum class Kind {
    /// From the configuration; a folder with checkpoints is refused.
    kNew,
    /// From the newest checkpoint; a folder without one is refused.
    kNewest,
    /// From the newest checkpoint, or from the configuration where there is none.
    kNewestOrNew,
    /// From the checkpoint of `step`.
    kStep,
  };
  Kind kind = Kind::kNew;
  int64_t step = 0;
};

/// What `--resume`'s value says: "newest", "auto" or a step. `where` begins the message of
/// ConfigError for anything else.
RunStart parse_run_start(const std::string& text, const std::string& where);

/// The checkpoint's folder that a run begins from, none for a new run. Throws ConfigError where
/// `start` and what the run's folder holds don't fit; IoError.
std::optional<std::string> find_start(const TrainConfig& config, const RunStart& start);

/// What a resumed run does otherwise than before, one line each such as
/// "optimizer.lr: 0.001, was 0.003", for people to read. `saved` is the configuration in the
/// checkpoint at `folder`, as config_to_json wrote it. The mesh, logging, checkpoints and what
/// changes no number are left out. Throws ConfigError for what a run can't change: its optimizer,
/// its seed, and how its sequences are made.
std::vector<std::string> changed_fields(const core::Json& saved, const TrainConfig& config,
                                        const std::string& folder);

/// Makes the run's folder and keeps other runs out of it for as long as this lives: RUN/lock. By
/// one rank. Throws IoError naming the process that uses the folder.
core::FileLock lock_run(const std::string& run);

}  // namespace weft::train
