#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/core/temp_dir.h"
#include "tests/models/family_files.h"
#include "weft/models/config/sources.h"
#include "weft/models/load/new_model.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/linear/panel_linear.h"

namespace weft::test {

/// The sizes of config.json that become columns of matrices, 16 times as large: panels take rows of
/// whole blocks of 32.
inline void enlarge(nlohmann::json& config) {
  constexpr int kFactor = 16;
  const std::vector<std::string> sizes = {"hidden_size",
                                          "head_dim",
                                          "intermediate_size",
                                          "moe_intermediate_size",
                                          "shared_expert_intermediate_size",
                                          "hidden_size_per_layer_input",
                                          "q_lora_rank",
                                          "kv_lora_rank",
                                          "qk_head_dim",
                                          "qk_nope_head_dim",
                                          "qk_rope_head_dim",
                                          "v_head_dim",
                                          "linear_key_head_dim",
                                          "linear_value_head_dim",
                                          "block_multiple_of"};
  for (auto& [key, value] : config.items()) {
    if (value.is_object()) enlarge(value);
    const bool is_size = std::ranges::find(sizes, key) != sizes.end();
    if (is_size && value.is_number()) value = value.get<int64_t>() * kFactor;
  }
}

/// With these members of config.json instead of the checkpoint's own.
inline models::ModelConfig enlarged_config(const std::string& name,
                                           const nlohmann::json& members = {}) {
  const testing::TempDir dir;
  std::filesystem::copy(family_path(name), dir.path());
  auto config = nlohmann::json::parse(dir.read("config.json"));
  enlarge(config);
  for (const auto& [key, value] : members.items()) config[key] = value;
  dir.write("config.json", config.dump());
  return models::read_config(*io::TensorFile::open(dir.path()));
}

/// A random model of a golden checkpoint's family, enlarged, with all its linears in panels of 4
/// bits, which read activations of so many; `members` as above. Collective over `group`.
inline std::shared_ptr<models::CausalLM> enlarged_family(const std::string& name,
                                                         const dist::Group& group,
                                                         int64_t activation_bits = 8,
                                                         const nlohmann::json& members = {}) {
  models::InitOptions options;
  options.std = 0.05;
  options.seed = 1;
  const models::AgreedModel agreed =
      models::agree_on(enlarged_config(name, members), group, options);
  const auto model = agreed.make(models::InitialWeights(agreed, group.rank(), options),
                                 options.layers, /*is_trainable=*/false);
  nn::quantize(*model, {quant::Mode::kAffine, 4, 32});
  nn::put_in_panels(*model, activation_bits);
  return model;
}

}  // namespace weft::test
