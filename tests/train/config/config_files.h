#pragma once

#include <string>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "weft/train/config/read_config.h"

namespace weft::train {

/// A configuration that is complete and right.
inline constexpr char kGoodConfig[] = R"([model]
hidden_size = 64
num_layers = 4
num_heads = 4
num_kv_heads = 2

[batch]
sequences = 8
sequence_length = 128

[train]
steps = 100
)";

/// The configuration that this TOML text gives.
inline TrainConfig config_of(const std::string& toml, const std::vector<GivenValue>& flags = {}) {
  const weft::testing::TempDir dir;
  return read_train_config(dir.write("run.toml", toml), flags);
}

/// What reading this TOML text complains of, with the path as "run.toml".
inline std::string read_error(const std::string& toml, const std::vector<GivenValue>& flags = {}) {
  const weft::testing::TempDir dir;
  const std::string path = dir.write("run.toml", toml);
  return weft::testing::replaced(weft::testing::error_text([&] { read_train_config(path, flags); }),
                                 path, "run.toml");
}

}  // namespace weft::train
