#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/core/temp_dir.h"
#include "tests/models/model_files.h"
#include "tests/text/byte_tokenizer.h"

namespace weft::test {

/// The golden checkpoints of all families, of some with several configurations.
inline const std::vector<std::string> kFamilyCheckpoints = {"llama",         "llama_bias",
                                                            "llama_linear",  "llama_dynamic",
                                                            "llama_llama3",  "llama_yarn",
                                                            "mistral",       "qwen2",
                                                            "qwen2_window",  "qwen3",
                                                            "mixtral",       "qwen2_moe",
                                                            "qwen3_moe",     "qwen3_moe_mixed",
                                                            "smollm3",       "smollm3_window",
                                                            "granite",       "phi3",
                                                            "olmo2",         "gemma2",
                                                            "gemma2_scalar", "gemma3",
                                                            "gpt_oss",       "ministral3",
                                                            "glm4",          "glm4_moe",
                                                            "deepseek_v3",   "deepseek_v3_halves",
                                                            "deepseek_v2",   "deepseek_v2_lite",
                                                            "glm4_moe_lite", "lfm2",
                                                            "qwen3_next",    "qwen3_5",
                                                            "gemma4",        "gemma4_moe",
                                                            "gemma4_small",  "qwen3_5_moe",
                                                            "phi3_long",     "phi3_short"};

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
