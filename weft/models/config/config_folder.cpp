// ModelConfig from Hugging Face's config.json. Defaults are those of transformers' configuration
// classes, which leave out of a file what it does not change.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/models/config/config_experts.h"
#include "weft/models/config/config_recurrent.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/families.h"
#include "weft/models/config/json_keys.h"
#include "weft/models/config/mixers/config_gemma4.h"
#include "weft/models/config/mixers/config_latent.h"
#include "weft/models/config/sources.h"
#include "weft/nn/kernels/kernel.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::FormatError;
using core::Json;

const FamilyInfo& find_folder_family(const std::string& name, const std::string& where) {
  const auto is_named = [&](const FamilyInfo& family) {
    return family.name == name || (!name.empty() && family.other_name == name);
  };
  const auto family = std::ranges::find_if(families(), is_named);
  check<ConfigError>(family != families().end(), where, ": model_type ", core::quote(name),
                     " is not supported, expected one of ", core::list_text(family_names()));
  return *family;
}

// Options that change the result and that weft does not have.
void check_known_options(const JsonKeys& keys, const FamilyInfo& family) {
  const bool is_gelu = family.activation == nn::Activation::kGeluTanh;
  const char* key = is_gelu ? "hidden_activation" : "hidden_act";
  const std::string own = is_gelu ? "gelu_pytorch_tanh" : "silu";
  const std::string activation = keys.text_or(key, own);
  check<ConfigError>(activation == own || (!is_gelu && activation == "swish"), keys.where(), ": ",
                     key, " ", core::quote(activation), " is not supported, expected ",
                     core::quote(own));
  check<ConfigError>(keys.flag_or("is_causal", true), keys.where(),
                     ": is_causal is false, which is not supported, expected true");
  if (has_gemma4_layers(family)) {
    // Pictures alone may be seen both ways.
    constexpr const char* kBothWays = "use_bidirectional_attention";
    const std::string seen = keys.text_or(kBothWays, "vision");
    check<ConfigError>(seen == "vision", keys.where(), ": ", kBothWays, " is ", core::quote(seen),
                       ", which is not supported, expected 'vision' or null");
    return;
  }
  check<ConfigError>(!keys.flag_or("use_bidirectional_attention", false), keys.where(),
                     ": use_bidirectional_attention is true, which is not supported, expected "
                     "false");
}

// transformers 5 has it among rope's parameters, too.
double rotated_part(const JsonKeys& keys, const FamilyInfo& family) {
  constexpr const char* kKey = "partial_rotary_factor";
  const Json* rope = keys.find("rope_parameters");
  if (rope == nullptr) return keys.real_or(kKey, family.rotated_part);
  const JsonKeys inner(*rope, keys.where() + ": rope scaling");
  return real_of_rope(keys, inner, kKey, family.rotated_part);
}

void read_partial_rope(const JsonKeys& keys, const FamilyInfo& family, ModelConfig& config) {
  const double rotated = rotated_part(keys, family);
  check<ConfigError>(rotated == 1.0 || family.has_partial_rope, keys.where(),
                     ": partial_rotary_factor is ", rotated, ", expected 1");
  check<FormatError>(rotated > 0 && rotated <= 1, keys.where(), ": partial_rotary_factor is ",
                     rotated, ", expected more than 0 and at most 1");
  config.rope_dims = 0;
  if (rotated == 1.0) return;
  config.rope_dims = static_cast<int64_t>(static_cast<double>(config.head_dim) * rotated);
  check<FormatError>(config.rope_dims > 0, keys.where(), ": partial_rotary_factor is ", rotated,
                     ", which leaves no dim of ", config.head_dim, " to rope");
}

// A list of 1 and 0 by layer, or every so-many-th layer.
void read_layers_without_rope(const JsonKeys& keys, const FamilyInfo& family, ModelConfig& config) {
  if (family.no_rope_interval == 0) return;
  config.layers_without_rope.clear();
  const int64_t interval = keys.integer_or("no_rope_layer_interval", family.no_rope_interval);
  check<FormatError>(interval >= 1, keys.where(), ": no_rope_layer_interval is ", interval,
                     ", expected at least 1");
  const Json* list = keys.find("no_rope_layers");
  if (list == nullptr) {
    config.layers_without_rope = every_layer(config.num_layers, interval);
    return;
  }
  const std::string where = keys.where() + ": no_rope_layers";
  check<FormatError>(list->is_array(), where, ": expected a list");
  check<FormatError>(static_cast<int64_t>(list->size()) == config.num_layers, where, ": ",
                     list->size(), " layers, expected ", config.num_layers);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool has_rope = core::to_int64((*list)[static_cast<size_t>(layer)], where) != 0;
    if (!has_rope) config.layers_without_rope.push_back(layer);
  }
}

void read_scales(const JsonKeys& keys, const FamilyInfo& family, ModelConfig& config) {
  if (!family.has_scales) return;
  for (const ScaleKey& key : kScaleKeys) {
    config.*key.member = scale_from_file(key, keys.real_or(key.folder, 1.0));
  }
}

// 0: none. Null says so, too.
double cap_size(const JsonKeys& keys, const CapKey& key, const FamilyCaps& family) {
  if (!keys.has(key.folder)) return keys.is_null(key.folder) ? 0 : family.*key.fallback;
  const double cap = keys.real(key.folder);
  check<FormatError>(std::isfinite(cap) && cap > 0, keys.where(), ": ", key.folder, " is ", cap,
                     ", expected a positive number, or null");
  return cap;
}

void read_caps(const JsonKeys& keys, const FamilyCaps& family, ModelConfig& config) {
  if (!family.has_keys) return;
  for (const CapKey& key : kCapKeys) config.*key.member = cap_size(keys, key, family);
}

void read_gate_limit(const JsonKeys& keys, const FamilyInfo& family, ModelConfig& config) {
  if (family.activation != nn::Activation::kClamped) return;
  config.gating.limit = keys.real_or("swiglu_limit", family.gate_limit);
  const double slope = keys.real_or("swiglu_alpha", nn::kernels::kClampedSlope);
  check<FormatError>(std::isfinite(config.gating.limit) && config.gating.limit > 0, keys.where(),
                     ": swiglu_limit is ", config.gating.limit, ", expected a positive number");
  check<ConfigError>(static_cast<float>(slope) == nn::kernels::kClampedSlope, keys.where(),
                     ": swiglu_alpha is ", slope, ", which is not supported, expected ",
                     nn::kernels::kClampedSlope);
}

void read_query_scalar(const JsonKeys& keys, const FamilyInfo& family, ModelConfig& config) {
  if (!family.has_query_scalar) return;
  const double scalar = keys.real_or(kQueryScalarKey, 256);
  check<FormatError>(std::isfinite(scalar) && scalar > 0, keys.where(), ": ", kQueryScalarKey,
                     " is ", scalar, ", expected a positive number");
  if (scalar != static_cast<double>(config.head_dim))
    config.attention_scale = 1 / std::sqrt(scalar);
}

void read_sizes(const JsonKeys& keys, const FamilyInfo& family, ModelConfig& config) {
  for (const SizeKey& key : kSizeKeys) {
    if (key.needed == Needed::kNowhere) continue;
    // Where all layers have experts there may be no other width.
    const bool is_width = key.member == &ModelConfig::ffn_width;
    const bool is_experts = is_width && family.experts.has_own_width && !keys.has(key.folder);
    config.*key.member = keys.integer(is_experts ? kExpertWidth.folder : key.folder);
  }
  check<FormatError>(config.num_heads >= 1, keys.where(), ": num_attention_heads is ",
                     config.num_heads, ", expected at least 1");
  config.num_kv_heads = config.num_heads;
  config.head_dim = family.head_dim > 0 ? family.head_dim : config.width / config.num_heads;
  for (const SizeKey& key : kSizeKeys) {
    if (key.needed != Needed::kNowhere) continue;
    config.*key.member = keys.integer_or(key.folder, config.*key.member);
  }
  if (!has_lfm2_names(family)) config.norm_eps = keys.real(kNormEpsFolderKey);
  config.is_tied = keys.flag_or("tie_word_embeddings", family.is_tied);
}

void read_biases(const JsonKeys& keys, BiasKeys biases, ModelConfig& config) {
  if (biases == BiasKeys::kAttentionAndMlp || biases == BiasKeys::kAttention) {
    config.has_qkv_bias = keys.flag_or("attention_bias", biases == BiasKeys::kAttention);
    config.has_output_bias = config.has_qkv_bias;
    config.has_mlp_bias = biases != BiasKeys::kAttention && keys.flag_or("mlp_bias", false);
  } else if (biases == BiasKeys::kQkvIfNotFalse || biases == BiasKeys::kQkvIfTrue) {
    config.has_qkv_bias = keys.flag_or("attention_bias", biases == BiasKeys::kQkvIfNotFalse);
  } else if (biases != BiasKeys::kNone) {
    config.has_qkv_bias = biases == BiasKeys::kQkvAlways || keys.flag_or("qkv_bias", true);
  }
}

// "full_attention" or "sliding_attention" for each layer; nothing if all layers see all.
std::vector<int64_t> windows_of_types(const Json& types, int64_t window, int64_t num_layers,
                                      const std::string& where) {
  check<FormatError>(types.is_array(), where, ": expected a list");
  std::vector<int64_t> windows;
  bool is_any = false;
  for (const Json& type : types) {
    const std::string name = core::to_string(type, where);
    const bool is_sliding = name == "sliding_attention";
    check<ConfigError>(is_sliding || name == "full_attention", where, ": ", core::quote(name),
                       " is not supported, expected one of [full_attention, sliding_attention]");
    check<FormatError>(!is_sliding || window > 0, where,
                       ": 'sliding_attention' without sliding_window; set it and "
                       "use_sliding_window");
    windows.push_back(is_sliding ? window : 0);
    is_any = is_any || is_sliding;
  }
  if (!is_any && static_cast<int64_t>(windows.size()) == num_layers) windows.clear();
  return windows;
}

// 0: none. A window of null says so, too; where the key is missing the family has a default.
int64_t window_size(const JsonKeys& keys, int64_t fallback) {
  if (!keys.has("sliding_window")) return keys.is_null("sliding_window") ? 0 : fallback;
  const int64_t window = keys.integer("sliding_window");
  check<FormatError>(window >= 1, keys.where(), ": sliding_window is ", window,
                     ", expected at least 1, or null");
  return window;
}

bool layer_has_rope(const ModelConfig& config, int64_t layer) {
  return !std::ranges::binary_search(config.layers_without_rope, layer);
}

// `border` is max_window_layers.
bool layer_has_window(WindowLayers layers, const ModelConfig& config, int64_t layer,
                      int64_t border) {
  if (layers == WindowLayers::kLast) return layer >= border;
  if (layers == WindowLayers::kEveryOtherFirst) return layer < border && layer % 2 == 0;
  return layers != WindowLayers::kWithoutRope || !layer_has_rope(config, layer);
}

void read_windows(const JsonKeys& keys, const FamilyWindows& family, ModelConfig& config) {
  if (family.layers == WindowLayers::kNone) return;
  const bool is_used = !family.is_switched || keys.flag_or("use_sliding_window", false);
  const int64_t window = is_used ? window_size(keys, family.default_size) : 0;
  const Json* types = keys.find("layer_types");
  if (family.layers != WindowLayers::kAll && types != nullptr) {
    config.windows =
        windows_of_types(*types, window, config.num_layers, keys.where() + ": layer_types");
    return;
  }
  if (window == 0) return;
  if (family.layers == WindowLayers::kAllButEvery) {
    FamilyWindows own = family;
    own.interval = keys.integer_or("sliding_window_pattern",
                                   keys.integer_or("_sliding_window_pattern", family.interval));
    check<FormatError>(own.interval >= 1, keys.where(), ": sliding_window_pattern is ",
                       own.interval, ", expected at least 1");
    config.windows = usual_windows(own, window, config.num_layers);
    return;
  }
  const int64_t border = keys.integer_or("max_window_layers", 28);
  for (int64_t layer = 0; layer < std::min(config.num_layers, kMaxLayers); ++layer) {
    config.windows.push_back(layer_has_window(family.layers, config, layer, border) ? window : 0);
  }
}

// Of a model of texts and pictures, that of its texts; null for others.
const Json* text_config(const JsonKeys& keys) {
  const std::string name = keys.text_or("model_type", "");
  const auto is_around = [&](const FamilyInfo& family) {
    return !name.empty() && family.around == name;
  };
  return std::ranges::any_of(families(), is_around) ? keys.find("text_config") : nullptr;
}

}  // namespace

ModelConfig config_from_json(const Json& json, const std::string& where) {
  const JsonKeys keys(json, where);
  if (const Json* text = text_config(keys)) {
    ModelConfig config = config_from_json(*text, where + ": text_config");
    config.is_tied = keys.flag_or("tie_word_embeddings", config.is_tied);
    return config;
  }
  ModelConfig config;
  const FamilyInfo& family =
      find_folder_family(core::to_string(core::require(json, "model_type", where), where), where);
  config.family = family.name;
  check_known_options(keys, family);
  read_sizes(keys, family, config);
  read_recurrent(keys, family, config);
  take_family_traits(config);
  read_rope(keys, {family.max_positions, family.rope_base}, config);
  read_partial_rope(keys, family, config);
  read_latent(keys, family.latent, config);
  read_layers_without_rope(keys, family, config);
  read_scales(keys, family, config);
  read_query_scalar(keys, family, config);
  read_gate_limit(keys, family, config);
  if (family.has_head_norms_key && keys.flag_or("use_qk_norm", false)) {
    config.head_norms = HeadNorms::kEachHead;
  }
  read_caps(keys, family.caps, config);
  read_biases(keys, family.biases, config);
  read_windows(keys, family.windows, config);
  read_gemma4(keys, family, config);
  read_experts(keys, family.experts, config);
  return config;
}

Json config_of_texts(const Json& json, const std::string& where) {
  const JsonKeys keys(json, where);
  const Json* text = text_config(keys);
  if (text == nullptr) return json;
  const ModelConfig config = config_from_json(json, where);
  Json alone = *text;
  alone["architectures"] = {family_info(config).transformers_class};
  alone["tie_word_embeddings"] = config.is_tied;
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "dtype", "torch_dtype"}) {
    if (keys.has(key)) alone[key] = json.at(key);
  }
  return alone;
}

ModelConfig config_from_folder(const io::TensorFile& file) {
  const std::string where = folder_of(file) + "/config.json";
  check<FormatError>(std::filesystem::exists(where), file.path(),
                     ": no config.json beside it says which model these tensors are; put it there, "
                     "or give a GGUF, which says it itself");
  return config_from_json(core::parse_json(core::read_text_file(where, kMaxConfigBytes), where),
                          where);
}

}  // namespace weft::models
