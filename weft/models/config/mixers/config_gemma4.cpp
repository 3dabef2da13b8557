#include "weft/models/config/mixers/config_gemma4.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "weft/core/error.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::FormatError;
using core::Json;
using nlohmann::json;
using nn::RopeType;

constexpr const char* kFullHeadDimKey = "global_head_dim";
constexpr const char* kFullKvHeadsKey = "num_global_key_value_heads";
constexpr const char* kKeysAreValuesKey = "attention_k_eq_v";
constexpr const char* kOverridesKey = "per_layer_config";
constexpr const char* kReusingKey = "num_kv_shared_layers";
constexpr const char* kWideKey = "use_double_wide_mlp";
constexpr const char* kInputWidthKey = "hidden_size_per_layer_input";
constexpr const char* kInputVocabularyKey = "vocab_size_per_layer_input";
constexpr const char* kExpertsKey = "enable_moe_block";
constexpr const char* kExpertCountKey = "num_experts";
constexpr const char* kTopKey = "top_k_experts";
constexpr double kTurnedPart = 0.25;

// What other families' files have and transformers does not read of this one.
constexpr const char* kForeignKeys[] = {"rope_theta", "rope_scaling", "rope_local_base_freq",
                                        "attn_logit_softcapping"};
// The same where layers' kinds are not listed.
constexpr const char* kPatternKeys[] = {"sliding_window_pattern", "_sliding_window_pattern"};

struct Heads {
  int64_t head_dim = 0;
  int64_t num_kv_heads = 0;

  bool operator==(const Heads&) const = default;
};

// What transformers 5.24 writes of a layer that is unlike the others.
Heads overridden(const JsonKeys& keys, const Json& own, Heads heads) {
  for (const auto& [name, value] : own.items()) {
    check<ConfigError>(name == "head_dim" || name == "num_key_value_heads", keys.where(), ": ",
                       core::quote(name),
                       " is not supported, expected one of [head_dim, num_key_value_heads]");
  }
  return {keys.integer_or("head_dim", heads.head_dim),
          keys.integer_or("num_key_value_heads", heads.num_kv_heads)};
}

// The heads of layers without a window, from a list of layers that are unlike the others.
void read_overrides(const JsonKeys& keys, ModelConfig& config) {
  const Json* overrides = keys.find(kOverridesKey);
  if (overrides == nullptr) return;
  const std::string where = keys.where() + ": " + kOverridesKey;
  check<FormatError>(overrides->is_object(), where, ": expected an object of layers");
  const Heads usual = {config.head_dim, config.num_kv_heads};
  FullLayersConfig& full = config.full_layers;
  bool is_known = false;
  size_t num_found = 0;
  for (int64_t layer = 0; layer < std::min(config.num_layers, kMaxLayers); ++layer) {
    const auto found = overrides->find(std::to_string(layer));
    Heads own = usual;
    if (found != overrides->end()) {
      ++num_found;
      check<FormatError>(found->is_object(), where, ": layer ", layer, ": expected an object");
      own = overridden(JsonKeys(*found, core::join(where, ": ", layer)), *found, usual);
    }
    const bool is_full = config.window(layer) == 0;
    const Heads expected = is_full && is_known ? Heads{full.head_dim, full.num_kv_heads} : usual;
    check<ConfigError>(
        (is_full && !is_known) || own == expected, where, ": layer ", layer, ": ", own.num_kv_heads,
        " kv heads of ", own.head_dim, ", which is not supported, expected ", expected.num_kv_heads,
        " of ", expected.head_dim, " as others ", is_full ? "without" : "with", " a window have");
    if (!is_full || is_known) continue;
    full.head_dim = own.head_dim;
    full.num_kv_heads = own.num_kv_heads;
    is_known = true;
  }
  check<FormatError>(num_found == overrides->size(), where, ": ", overrides->size() - num_found,
                     " layers that there are not, expected numbers below ", config.num_layers);
}

void check_foreign_keys(const JsonKeys& keys) {
  for (const char* key : kForeignKeys) {
    check<ConfigError>(!keys.has(key), keys.where(), ": ", key,
                       " is not supported in this family, expected rope_parameters for rope, and "
                       "no cap of scores");
  }
  for (const char* key : kPatternKeys) {
    check<ConfigError>(!keys.has(key) || keys.has("layer_types"), keys.where(), ": ", key,
                       " is not supported in this family, expected layer_types");
  }
}

// Each kind of layer that the model has needs its own, as transformers does.
void check_rope_bases(const JsonKeys& keys, const ModelConfig& config) {
  const Json* parameters = keys.find("rope_parameters");
  if (parameters == nullptr) return;
  const JsonKeys kinds(*parameters, keys.where() + ": rope_parameters");
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    if (config.windows.empty() && std::string_view(kind) == "sliding_attention") continue;
    const Json* own = kinds.find(kind);
    check<FormatError>(own != nullptr && JsonKeys(*own, kinds.where()).has("rope_theta"),
                       kinds.where(), ": ", kind, " has no rope_theta, expected a number");
  }
}

void read_full_layers(const JsonKeys& keys, const FamilyInfo& family, ModelConfig& config) {
  FullLayersConfig& full = config.full_layers;
  full.keys_are_values = keys.flag_or(kKeysAreValuesKey, false);
  full.head_dim = keys.integer_or(kFullHeadDimKey, family.full_head_dim);
  full.num_kv_heads = full.keys_are_values ? keys.integer_or(kFullKvHeadsKey, config.num_kv_heads)
                                           : config.num_kv_heads;
  read_overrides(keys, config);
  check<FormatError>(full.head_dim >= 1, keys.where(), ": head dim of layers without a window is ",
                     full.head_dim, ", expected at least 1");
  const RopeType type = config.rope_scaling.type;
  check<ConfigError>(type == RopeType::kDefault || type == RopeType::kProportional, keys.where(),
                     ": rope_parameters: full_attention: this rope_type is not supported, expected "
                     "one of [default, proportional]");
  check_rope_bases(keys, config);
}

void read_reusing(const JsonKeys& keys, ModelConfig& config) {
  config.reusing.count = keys.integer_or(kReusingKey, 0);
  const bool is_wide = keys.flag_or(kWideKey, false) && config.reusing.count > 0;
  // A width that is too large is refused by itself.
  const bool is_sane = config.ffn_width > 0 && config.ffn_width <= int64_t{1} << 31;
  config.reusing.ffn_width = is_wide && is_sane ? 2 * config.ffn_width : 0;
}

void read_layer_inputs(const JsonKeys& keys, ModelConfig& config) {
  LayerInputsConfig& inputs = config.layer_inputs;
  inputs.width = keys.is_null(kInputWidthKey) ? 0 : keys.integer_or(kInputWidthKey, 256);
  check<FormatError>(inputs.width >= 0, keys.where(), ": ", kInputWidthKey, " is ", inputs.width,
                     ", expected 0 or more");
  if (inputs.width == 0) return;
  inputs.vocab_size = keys.integer_or(kInputVocabularyKey, 262'144);
  check<FormatError>(inputs.vocab_size >= config.vocab_size, keys.where(), ": ",
                     kInputVocabularyKey, " is ", inputs.vocab_size, ", expected at least ",
                     config.vocab_size, " as vocab_size");
}

void read_mixture(const JsonKeys& keys, ModelConfig& config) {
  if (!keys.flag_or(kExpertsKey, false)) return;
  ExpertsConfig& experts = config.experts;
  experts.num_experts = keys.integer(kExpertCountKey);
  experts.experts_per_token = keys.integer(kTopKey);
  experts.ffn_width = keys.integer(kExpertWidth.folder);
  experts.is_beside_ffn = true;
  check<FormatError>(experts.num_experts >= 1, keys.where(), ": ", kExpertCountKey, " is ",
                     experts.num_experts, ", expected at least 1");
}

json rope_json(const ModelConfig& config) {
  json full = {{"rope_type", "default"}, {"rope_theta", config.rope_base}};
  if (config.rope_scaling.type == RopeType::kProportional) {
    full["rope_type"] = "proportional";
    full["partial_rotary_factor"] = config.rope_scaling.turned_part;
    if (config.rope_scaling.factor != 1) full["factor"] = config.rope_scaling.factor;
  }
  return {
      {"full_attention", std::move(full)},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", config.window_rope_base}}}};
}

// One number of kv heads for layers without a window is read only where keys are values, so that
// otherwise each of these layers says its own.
json overrides_json(const ModelConfig& config) {
  const FullLayersConfig& full = config.full_layers;
  if (full.keys_are_values || full.num_kv_heads == config.num_kv_heads) return json();
  json overrides = json::object();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (config.window(layer) != 0) continue;
    overrides[std::to_string(layer)] = {{"head_dim", full.head_dim},
                                        {"num_key_value_heads", full.num_kv_heads}};
  }
  return overrides;
}

}  // namespace

void take_gemma4_traits(const FamilyInfo& family, ModelConfig& config) {
  config.attention_scale = 1;
  config.norms_values = true;
  config.scales_layers = true;
  config.rope_scaling.type = RopeType::kProportional;
  config.rope_scaling.turned_part = kTurnedPart;
  config.full_layers.head_dim = family.full_head_dim;
  config.full_layers.num_kv_heads = config.num_kv_heads;
}

void read_gemma4(const JsonKeys& keys, const FamilyInfo& family, ModelConfig& config) {
  if (!has_gemma4_layers(family)) return;
  check_foreign_keys(keys);
  const auto num_listed = static_cast<int64_t>(config.windows.size());
  check<FormatError>(num_listed == 0 || num_listed == config.num_layers, keys.where(),
                     ": layer_types has ", num_listed, " layers, expected ", config.num_layers);
  // transformers gives the last layer no window, whatever the file says.
  if (!config.windows.empty()) config.windows.back() = 0;
  read_full_layers(keys, family, config);
  read_reusing(keys, config);
  read_layer_inputs(keys, config);
  read_mixture(keys, config);
}

void add_gemma4(const ModelConfig& config, json& object) {
  const FullLayersConfig& full = config.full_layers;
  for (const char* key : {"rope_theta", "rope_scaling", "rope_local_base_freq"}) object.erase(key);
  object["rope_parameters"] = rope_json(config);
  object[kFullHeadDimKey] = full.head_dim;
  object[kKeysAreValuesKey] = full.keys_are_values;
  object[kFullKvHeadsKey] = full.keys_are_values ? json(full.num_kv_heads) : json();
  if (json overrides = overrides_json(config); !overrides.is_null()) {
    object[kOverridesKey] = std::move(overrides);
  }
  object[kReusingKey] = config.reusing.count;
  object[kWideKey] = config.reusing.ffn_width > 0;
  object[kInputWidthKey] = config.layer_inputs.width;
  if (config.layer_inputs.is_used()) {
    object[kInputVocabularyKey] = config.layer_inputs.vocab_size;
  }
  object[kExpertsKey] = config.experts.num_experts > 0;
  if (config.experts.num_experts == 0) return;
  object[kExpertCountKey] = config.experts.num_experts;
  object[kTopKey] = config.experts.experts_per_token;
  object[kExpertWidth.folder] = config.experts.ffn_width;
}

}  // namespace weft::models
