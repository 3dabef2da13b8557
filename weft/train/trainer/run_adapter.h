#pragma once

#include <memory>
#include <string>

#include "weft/models/adapter.h"
#include "weft/train/config/train_config.h"

namespace weft::train {

/// The adapters that a checkpoint of `weft lora` holds, whatever mesh saved it, and the run's
/// configuration: model.from is the base, as it was given then.
struct RunAdapter {
  TrainConfig config;
  std::unique_ptr<models::AdapterSource> adapters;
};

/// Reads the manifest of the checkpoint in `folder`; the adapters themselves are read when they are
/// asked for, all files' hashes before the first. Throws FormatError, ConfigError for a checkpoint
/// without adapters, IoError.
RunAdapter open_run_adapter(const std::string& folder);

}  // namespace weft::train
