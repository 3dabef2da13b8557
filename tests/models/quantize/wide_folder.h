#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/core/temp_dir.h"
#include "tests/models/family_files.h"
#include "weft/core/files/file.h"
#include "weft/models/config/sources.h"
#include "weft/models/convert/export_loaded.h"
#include "weft/models/load/new_model.h"

namespace weft::test {

/// A folder with a random Llama in bfloat16 whose matrices' rows are whole blocks of 256, and a
/// tokenizer of bytes.
inline std::string wide_folder(const testing::TempDir& dir, int64_t layers = 1) {
  auto config =
      nlohmann::json::parse(core::read_text_file(family_path("llama", "config.json"), 1 << 20));
  config["hidden_size"] = 256;
  config["head_dim"] = 64;
  config["num_attention_heads"] = 4;
  config["num_key_value_heads"] = 2;
  config["intermediate_size"] = 512;
  config["vocab_size"] = 256;
  config["num_hidden_layers"] = layers;
  config["torch_dtype"] = "bfloat16";
  const std::string folder = dir.at("wide");
  std::filesystem::create_directory(folder);
  dir.write("wide/config.json", config.dump());
  testing::add_byte_tokenizer(folder);
  models::InitOptions options;
  options.seed = 5;
  const auto model =
      models::make_model(models::config_from_json(config, folder), dist::Group(), options);
  models::export_loaded(*model, io::Dtype::kBF16, uint64_t{1} << 30, folder);
  return folder;
}

}  // namespace weft::test
