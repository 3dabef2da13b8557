// Hugging Face's config.json from a ModelConfig.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/core/error.h"
#include "weft/models/config/config.h"
#include "weft/models/config/sources.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using nlohmann::json;
using nn::RopeType;

constexpr const char* kConfigJson = "models.config_json";

// Families and the class of transformers that runs them.
constexpr std::array<std::pair<const char*, const char*>, 7> kTransformersArchitectures = {
    {{"llama", "LlamaForCausalLM"},
     {"mistral", "MistralForCausalLM"},
     {"mixtral", "MixtralForCausalLM"},
     {"qwen2", "Qwen2ForCausalLM"},
     {"qwen3", "Qwen3ForCausalLM"},
     {"qwen2_moe", "Qwen2MoeForCausalLM"},
     {"qwen3_moe", "Qwen3MoeForCausalLM"}}};

const char* architecture_of(const std::string& family) {
  for (const auto& [name, architecture] : kTransformersArchitectures) {
    if (family == name) return architecture;
  }
  core::fail<ConfigError>(kConfigJson, ": no config.json can be made for the family ",
                          core::quote(family));
}

// Without what scaling adds, where the file leaves it to the reader.
int64_t stated_positions(const ModelConfig& config) {
  const nn::RopeScaling& scaling = config.rope_scaling;
  if (scaling.type == RopeType::kDynamic) return scaling.original_positions;
  if (scaling.type != RopeType::kLinear) return config.max_positions;
  // The reader multiplies and rounds down.
  constexpr double kRounding = 1e-9;
  const double positions = static_cast<double>(config.max_positions) / scaling.factor;
  return static_cast<int64_t>(std::ceil(positions * (1 - kRounding)));
}

json rope_json(const nn::RopeScaling& scaling) {
  if (scaling.type == RopeType::kLinear) {
    return {{"rope_type", "linear"}, {"factor", scaling.factor}};
  }
  if (scaling.type == RopeType::kDynamic) {
    return {{"rope_type", "dynamic"}, {"factor", scaling.factor}};
  }
  if (scaling.type == RopeType::kLlama3) {
    return {{"rope_type", "llama3"},
            {"factor", scaling.factor},
            {"low_freq_factor", scaling.low_freq_factor},
            {"high_freq_factor", scaling.high_freq_factor},
            {"original_max_position_embeddings", scaling.original_positions}};
  }
  json yarn = {{"rope_type", "yarn"},
               {"factor", scaling.factor},
               {"original_max_position_embeddings", scaling.original_positions},
               {"beta_fast", scaling.beta_fast},
               {"beta_slow", scaling.beta_slow},
               {"truncate", scaling.truncate}};
  if (scaling.attention_factor) yarn["attention_factor"] = *scaling.attention_factor;
  if (scaling.mscale != 0) yarn["mscale"] = scaling.mscale;
  if (scaling.mscale_all_dim != 0) yarn["mscale_all_dim"] = scaling.mscale_all_dim;
  return yarn;
}

void add_windows(const ModelConfig& config, json& object) {
  const bool has_types = config.family == "qwen2" || config.family == "qwen3";
  int64_t window = 0;
  json types = json::array();
  for (const int64_t own : config.windows) {
    if (own > 0) window = own;
    types.push_back(own > 0 ? "sliding_attention" : "full_attention");
  }
  object["sliding_window"] = window > 0 ? json(window) : json();
  object["use_sliding_window"] = window > 0;
  if (has_types && window > 0) object["layer_types"] = std::move(types);
}

void add_experts(const ModelConfig& config, json& object) {
  const ExpertsConfig& experts = config.experts;
  if (experts.num_experts == 0) return;
  object["num_experts_per_tok"] = experts.experts_per_token;
  if (config.family == "mixtral") {
    object["num_local_experts"] = experts.num_experts;
    return;
  }
  object["num_experts"] = experts.num_experts;
  object["moe_intermediate_size"] = experts.ffn_width;
  object["norm_topk_prob"] = experts.normalizes_weights;
  object["decoder_sparse_step"] = experts.layer_step;
  object["mlp_only_layers"] = experts.plain_layers;
  if (experts.shared_ffn_width > 0) {
    object["shared_expert_intermediate_size"] = experts.shared_ffn_width;
  }
}

}  // namespace

json config_json(const ModelConfig& config) {
  json object = {{"architectures", json::array({architecture_of(config.family)})},
                 {"model_type", config.family},
                 {"vocab_size", config.vocab_size},
                 {"hidden_size", config.width},
                 {"num_hidden_layers", config.num_layers},
                 {"num_attention_heads", config.num_heads},
                 {"num_key_value_heads", config.num_kv_heads},
                 {"head_dim", config.head_dim},
                 {"intermediate_size", config.ffn_width},
                 {"max_position_embeddings", stated_positions(config)},
                 {"rms_norm_eps", config.norm_eps},
                 {"rope_theta", config.rope_base},
                 {"hidden_act", "silu"},
                 {"tie_word_embeddings", config.is_tied},
                 {"attention_bias", config.has_qkv_bias},
                 {"mlp_bias", config.has_mlp_bias}};
  if (config.family == "qwen2_moe") object["qkv_bias"] = config.has_qkv_bias;
  if (config.rope_scaling.type != RopeType::kDefault) {
    object["rope_scaling"] = rope_json(config.rope_scaling);
  }
  add_windows(config, object);
  add_experts(config, object);
  check<ConfigError>(config_from_json(object, kConfigJson) == config, kConfigJson, ": the family ",
                     core::quote(config.family),
                     " has no config.json for these biases, norms, windows, experts or this rope; "
                     "choose another family or change them");
  return object;
}

}  // namespace weft::models
