#pragma once

#include <string>
#include <vector>

#include "weft/train/config/train_config.h"

namespace weft::train {

/// A value that a flag gives.
struct GivenValue {
  /// "mesh.tp".
  std::string name;
  /// As `set_from_text` reads it.
  std::string text;
  /// What the user wrote it by, e.g. "--tp".
  std::string source;
};

/// The configuration of a TOML file (TOML 1.0): the flags' values win over the environment's
/// (`environment_name`), these over the file's, these over the defaults. Each value is checked by
/// itself; check_config checks that they fit each other. Throws ConfigError with file:line:column
/// for a file that is no TOML, an unknown section or key, a wrong type or a number out of range;
/// FormatError if there is no such file.
TrainConfig read_train_config(const std::string& path, const std::vector<GivenValue>& flags = {});

/// The variable that a value is read from: WEFT_TP and the like for [mesh], whose keys are flags,
/// WEFT_OPTIMIZER_LR for the other sections.
std::string environment_name(const std::string& name);

}  // namespace weft::train
