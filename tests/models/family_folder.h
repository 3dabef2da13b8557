#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/family_files.h"
#include "weft/core/files/file.h"
#include "weft/models/config/sources.h"

namespace weft::test {

/// A copy of a golden checkpoint whose config.json is changed.
class FamilyFolder {
 public:
  explicit FamilyFolder(const std::string& name)
      : good_(nlohmann::json::parse(
            core::read_text_file(family_path(name, "config.json"), 1 << 20))) {
    std::filesystem::copy_file(family_path(name, "model.safetensors"),
                               dir_.at("model.safetensors"));
  }
  models::ModelConfig config(const nlohmann::json& changes = nlohmann::json::object()) const {
    nlohmann::json changed = good_;
    for (const auto& [key, value] : changes.items()) changed[key] = value;
    dir_.write("config.json", changed.dump());
    return models::read_config(*io::TensorFile::open(dir_.path()));
  }
  std::string error(const nlohmann::json& changes) const {
    return testing::replaced(testing::error_text([&] { config(changes); }), dir_.path(), "DIR");
  }
  models::ModelConfig config_without(const char* key) const {
    nlohmann::json changed = good_;
    changed.erase(key);
    dir_.write("config.json", changed.dump());
    return models::read_config(*io::TensorFile::open(dir_.path()));
  }

 private:
  testing::TempDir dir_;
  nlohmann::json good_;
};

}  // namespace weft::test
