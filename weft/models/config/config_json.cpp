// Hugging Face's config.json from a ModelConfig.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/config/config.h"
#include "weft/models/config/config_recurrent.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/families.h"
#include "weft/models/config/mixers/config_gemma4.h"
#include "weft/models/config/mixers/latent_keys.h"
#include "weft/models/config/sources.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using nlohmann::json;
using nn::RopeType;

constexpr const char* kConfigJson = "models.config_json";

const FamilyInfo& family_of(const ModelConfig& config) {
  const FamilyInfo* family = find_family_info(config.family);
  check<ConfigError>(family != nullptr, kConfigJson, ": no config.json can be made for the family ",
                     core::quote(config.family));
  return *family;
}

// Without what scaling adds, where the file leaves it to the reader.
int64_t stated_positions(const ModelConfig& config) {
  const nn::RopeScaling& scaling = config.rope_scaling;
  if (scaling.type == RopeType::kDynamic) return scaling.original_positions;
  if (!states_unscaled_positions(config)) return config.max_positions;
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
            {kOriginalPositionsKey, scaling.original_positions}};
  }
  if (scaling.type == RopeType::kLongRope) {
    json lists = {{"type", "longrope"},
                  {"short_factor", scaling.short_factors},
                  {"long_factor", scaling.long_factors}};
    if (scaling.attention_factor) lists["attention_factor"] = *scaling.attention_factor;
    return lists;
  }
  json yarn = {{"rope_type", "yarn"},
               {"factor", scaling.factor},
               {kOriginalPositionsKey, scaling.original_positions},
               {"beta_fast", scaling.beta_fast},
               {"beta_slow", scaling.beta_slow},
               {"truncate", scaling.truncate}};
  if (scaling.attention_factor) yarn["attention_factor"] = *scaling.attention_factor;
  if (scaling.mscale != 0) yarn["mscale"] = scaling.mscale;
  if (scaling.mscale_all_dim != 0) yarn["mscale_all_dim"] = scaling.mscale_all_dim;
  return yarn;
}

// What transformers reads beside a scaling of three members, and the factor where the positions
// don't say it.
void add_long_rope(const ModelConfig& config, json& object) {
  const nn::RopeScaling& scaling = config.rope_scaling;
  object[kOriginalPositionsKey] = scaling.original_positions;
  const double ratio =
      static_cast<double>(config.max_positions) / static_cast<double>(scaling.original_positions);
  if (scaling.factor != std::max(ratio, 1.0)) object["rope_scaling"]["factor"] = scaling.factor;
}

// A plain rope is left out, unless transformers would take another one then.
void add_rope(const ModelConfig& config, const FamilyInfo& family, json& object) {
  const bool is_plain = config.rope_scaling.type == RopeType::kDefault;
  if (is_plain && family.usual_rope == nullptr) return;
  json& rope = object["rope_scaling"];
  rope = is_plain ? json{{"rope_type", "default"}} : rope_json(config.rope_scaling);
  // Where transformers reads it of a list with three members.
  if (config.rope_scaling.type == RopeType::kLongRope) add_long_rope(config, object);
  if (!family.has_query_growth) return;
  // Read with rope of any type.
  rope[kQueryGrowthFolderKey] = config.query_growth;
  if (!rope.contains(kOriginalPositionsKey)) rope[kOriginalPositionsKey] = config.max_positions;
}

void add_latent(const ModelConfig& config, const FamilyLatent& family, json& object) {
  const LatentConfig& latent = config.latent;
  if (!latent.is_used()) return;
  object[kKvRankFolderKey] = latent.kv_rank;
  object[kQueryRankFolderKey] = latent.query_rank > 0 ? json(latent.query_rank) : json();
  object[kValueDimFolderKey] = latent.value_dim;
  object[kPlainDimFolderKey] = config.head_dim - config.rope_dims;
  object[kRopeDimFolderKey] = config.rope_dims;
  // transformers takes it for rope's.
  object["head_dim"] = config.rope_dims;
  if (family.has_interleave_key) object[kInterleaveFolderKey] = config.turns_neighbours;
}

void add_sizes(const ModelConfig& config, json& object) {
  for (const SizeKey& key : kSizeKeys) object[key.folder] = config.*key.member;
  object["max_position_embeddings"] = stated_positions(config);
  object[kNormEpsFolderKey] = config.norm_eps;
  object["tie_word_embeddings"] = config.is_tied;
}

void add_biases(const ModelConfig& config, BiasKeys biases, json& object) {
  object["attention_bias"] = config.has_qkv_bias;
  object["mlp_bias"] = config.has_mlp_bias;
  if (biases == BiasKeys::kQkv) object["qkv_bias"] = config.has_qkv_bias;
}

// The fraction of which int(fraction * head_dim), the reader's way, is rope_dims.
double rotated_part(const ModelConfig& config) {
  const auto dims = static_cast<double>(config.rope_dims);
  const auto head_dim = static_cast<double>(config.head_dim);
  const double part = dims / head_dim;
  return std::floor(part * head_dim) < dims ? std::nextafter(part, 1) : part;
}

// The scale of scores that attention_scale 0 stands for.
double head_scale(const ModelConfig& config) {
  return 1 / std::sqrt(static_cast<double>(config.head_dim));
}

// The number whose root scores are divided by; a whole one, if it gives the same.
json query_scalar(const ModelConfig& config) {
  if (config.attention_scale == 0) return config.head_dim;
  const double exact = 1 / (config.attention_scale * config.attention_scale);
  const double whole = std::round(exact);
  const bool is_whole = 1 / std::sqrt(whole) == config.attention_scale;
  return is_whole ? json(static_cast<int64_t>(whole)) : json(exact);
}

void add_options(const ModelConfig& config, const FamilyInfo& family, json& object) {
  const bool is_part = config.rope_dims > 0;
  if (family.has_partial_rope && (is_part || family.rotated_part != 1)) {
    object["partial_rotary_factor"] = is_part ? rotated_part(config) : 1.0;
  }
  if (family.has_head_norms_key) object["use_qk_norm"] = config.head_norms == HeadNorms::kEachHead;
  if (family.no_rope_interval > 0) {
    std::vector<int> has_rope(static_cast<size_t>(config.num_layers), 1);
    for (const int64_t layer : config.layers_without_rope) {
      has_rope[static_cast<size_t>(layer)] = 0;
    }
    object["no_rope_layers"] = has_rope;
  }
  if (family.activation == nn::Activation::kClamped) object["swiglu_limit"] = config.gating.limit;
  if (family.window_rope_base != 0) object[kWindowRopeFolderKey] = config.window_rope_base;
  if (family.has_query_scalar) object[kQueryScalarKey] = query_scalar(config);
  for (const CapKey& key : kCapKeys) {
    if (!family.caps.has_keys) break;
    const double cap = config.*key.member;
    object[key.folder] = cap > 0 ? json(cap) : json();
  }
  if (!family.has_scales) return;
  for (const ScaleKey& key : kScaleKeys) {
    const bool is_left_out = config.*key.member == 0;
    object[key.folder] = is_left_out ? head_scale(config) : scale_in_file(key, config.*key.member);
  }
}

void add_windows(const ModelConfig& config, const FamilyWindows& family, json& object) {
  const bool is_patterned = family.layers == WindowLayers::kAllButEvery;
  const bool has_types =
      family.layers != WindowLayers::kNone && family.layers != WindowLayers::kAll;
  int64_t window = 0;
  json types = json::array();
  for (const int64_t own : config.windows) {
    if (own > 0) window = own;
    types.push_back(own > 0 ? "sliding_attention" : "full_attention");
  }
  object["sliding_window"] = window > 0 ? json(window) : json();
  object["use_sliding_window"] = window > 0;
  if (is_patterned && config.windows.empty()) {
    types = std::vector<std::string>(static_cast<size_t>(config.num_layers), "full_attention");
  }
  if (has_types && (window > 0 || is_patterned)) object["layer_types"] = std::move(types);
}

void add_routed(const ExpertsConfig& experts, const FamilyRouting& family, json& object) {
  for (const RoutedKey& key : kRoutedKeys) object[key.folder] = experts.*key.member;
  if (family.has_method_key) {
    object[kMethodFolderKey] = experts.num_groups > 1 ? kGroupsMethod : kGreedyMethod;
  }
  object[kWeightsScaleFolderKey] = experts.weights_scale;
  object[kSharedCountFolderKey] = experts.shared_ffn_width / experts.ffn_width;
  object[kPlainCountFolderKey] = experts.plain_layers.size();
}

// As readers of a list that may be left out have it.
void add_layer_list(const ModelConfig& config, json& object) {
  std::vector<std::string> types;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    types.emplace_back(config.has_experts(layer) ? kSparseLayer : kDenseLayer);
  }
  object[kLayerListFolderKey] = types;
}

void add_experts(const ExpertsConfig& experts, const FamilyExperts& family, json& object) {
  if (experts.num_experts == 0 || family.count_key == nullptr) return;
  object[family.count_key] = experts.num_experts;
  object[kExpertsPerToken.folder] = experts.experts_per_token;
  if (!family.has_own_width) return;
  object[kExpertWidth.folder] = experts.ffn_width;
  object["norm_topk_prob"] = experts.normalizes_weights;
  if (family.has_routed_keys) return add_routed(experts, family.routing, object);
  object["decoder_sparse_step"] = experts.layer_step;
  object["mlp_only_layers"] = experts.plain_layers;
  if (family.has_shared) object[kSharedExpertWidth.folder] = experts.shared_ffn_width;
}

void check_is_read_back(const ModelConfig& config, const FamilyInfo& family, const json& object) {
  ModelConfig expected = config;
  if (family.has_scales && config.attention_scale == 0) {
    expected.attention_scale = head_scale(config);
  }
  check<ConfigError>(config_from_json(object, kConfigJson) == expected, kConfigJson,
                     ": the family ", core::quote(config.family),
                     " has no config.json for these biases, norms, windows, experts or this rope; "
                     "choose another family or change them");
}

}  // namespace

json config_json(const ModelConfig& config) {
  const FamilyInfo& family = family_of(config);
  json object = {{"architectures", json::array({std::string(family.transformers_class)})},
                 {"model_type", config.family},
                 {"rope_theta", config.rope_base}};
  if (family.activation == nn::Activation::kGeluTanh) {
    object["hidden_activation"] = "gelu_pytorch_tanh";
  } else {
    object["hidden_act"] = "silu";
  }
  add_sizes(config, object);
  add_latent(config, family.latent, object);
  add_biases(config, family.biases, object);
  if (!has_gemma4_layers(family)) add_rope(config, family, object);
  add_windows(config, family.windows, object);
  add_experts(config.experts, family.experts, object);
  add_recurrent(config, family, object);
  if (family.experts.routing.has_layer_list) add_layer_list(config, object);
  add_options(config, family, object);
  if (has_gemma4_layers(family)) add_gemma4(config, object);
  check_is_read_back(config, family, object);
  return object;
}

}  // namespace weft::models
