#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/models/adapter.h"

namespace weft::models {

/// The configuration's name in a folder of the peft package.
inline constexpr char kPeftConfigName[] = "adapter_config.json";
/// Its weights'.
inline constexpr char kPeftWeightsName[] = "adapter_model.safetensors";

/// Opens a folder that Hugging Face's peft has saved: adapter_config.json (r, lora_alpha,
/// target_modules, use_rslora, rank_pattern and alpha_pattern of plain names) and
/// adapter_model.safetensors with "base_model.model.<layer>.lora_A.weight" [r, in] and
/// "….lora_B.weight" [out, r]. The header alone is read. Throws FormatError for what is not such a
/// folder, ConfigError for kinds of adapters other than LoRA beside linear layers (DoRA, trained
/// biases, embeddings, whole modules).
std::unique_ptr<AdapterSource> open_peft_folder(const std::string& folder);

/// What adapter_config.json says beside the weights.
struct PeftConfig {
  /// Of the model that was adapted.
  std::string base_model;
  int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;
  std::vector<std::string> targets;
};

/// Throws ConfigError for adapters of a model so configured that peft would look for elsewhere: of
/// embeddings, and of layers that transformers has as parts of others.
void check_peft_layers(const AdapterSource& adapters, const ModelConfig& config);

/// Writes the two files to `folder`, which is there, as peft reads them. Throws FormatError,
/// IoError.
void write_peft_folder(const AdapterSource& adapters, const PeftConfig& config,
                       const std::string& folder);

}  // namespace weft::models
