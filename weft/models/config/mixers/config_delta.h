#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "weft/models/config/config.h"
#include "weft/models/config/json_keys.h"
#include "weft/models/config/sources_gguf.h"

namespace weft::models {

/// A size of the heads of gated delta nets by its names in files.
struct DeltaKey {
  int64_t nn::DeltaHeads::*member;
  const char* folder;
  /// Where config.json says nothing.
  int64_t fallback;
};
inline constexpr DeltaKey kDeltaKeys[] = {
    {&nn::DeltaHeads::num_key_heads, "linear_num_key_heads", 16},
    {&nn::DeltaHeads::num_value_heads, "linear_num_value_heads", 32},
    {&nn::DeltaHeads::key_dim, "linear_key_head_dim", 128},
    {&nn::DeltaHeads::value_dim, "linear_value_head_dim", 128},
};
inline constexpr const char* kDeltaTapsFolderKey = "linear_conv_kernel_dim";
/// GGUF's, which has a value's features times their heads, and every so-many-th layer with
/// attention.
inline constexpr const char* kDeltaTapsGgufKey = "ssm.conv_kernel";
inline constexpr const char* kDeltaKeyHeadsGgufKey = "ssm.group_count";
inline constexpr const char* kDeltaValueHeadsGgufKey = "ssm.time_step_rank";
inline constexpr const char* kDeltaKeyDimGgufKey = "ssm.state_size";
inline constexpr const char* kDeltaFeaturesGgufKey = "ssm.inner_size";
inline constexpr const char* kAttentionIntervalKey = "full_attention_interval";
inline constexpr int64_t kAttentionInterval = 4;

/// All layers but every so-many-th.
std::vector<int64_t> layers_between(int64_t interval, int64_t num_layers);

/// The gated delta nets of a family that has some, from config.json: ModelConfig::recurrent without
/// its layers where `layer_types` lists these. Throws FormatError.
void read_delta(const JsonKeys& keys, ModelConfig& config);
/// The same from a GGUF's keys.
void read_delta(const GgufKeys& keys, const std::string& architecture, ModelConfig& config);
/// What config.json says of their sizes.
void add_delta(const RecurrentConfig& recurrent, nlohmann::json& object);

}  // namespace weft::models
