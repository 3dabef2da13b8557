#pragma once

#include <filesystem>
#include <string>

#include "tests/core/temp_dir.h"
#include "tests/models/model_files.h"
#include "tests/text/byte_tokenizer.h"

namespace weft::test {

/// A file of a family's golden checkpoint, or its folder.
inline std::string family_path(const std::string& name, const std::string& file = "") {
  return model_data("families/" + name + "/" + file);
}

/// A copy of a family's folder with a tokenizer, without which a model is no GGUF.
inline std::string family_with_tokenizer(const testing::TempDir& dir, const std::string& name) {
  const std::string folder = dir.at(name);
  std::filesystem::copy(family_path(name), folder);
  testing::add_byte_tokenizer(folder);
  return folder;
}

}  // namespace weft::test
