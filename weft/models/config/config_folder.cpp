// ModelConfig from Hugging Face's config.json. Defaults are those of transformers' configuration
// classes, which leave out of a file what it does not change.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/json_keys.h"
#include "weft/models/config/sources.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::FormatError;
using core::Json;

// Which layers' attention has a window.
enum class WindowStyle {
  kNone,
  // `sliding_window`, all layers.
  kAll,
  // The same if `use_sliding_window`.
  kAllIfUsed,
  // If used, the layers that `layer_types` names, or those from `max_window_layers` on.
  kByLayer,
};
enum class BiasStyle { kNone, kAttentionBias, kQkv, kQkvByKey };
enum class ExpertStyle { kNone, kMixtral, kQwen };

// What distinguishes a family in config.json.
struct FolderFamily {
  std::string_view name;
  int64_t positions;
  double rope_base;
  BiasStyle bias;
  WindowStyle window;
  ExpertStyle experts;
  bool has_head_norms;
  // 0: width / heads.
  int64_t head_dim;
  int64_t default_window;
};

constexpr std::array<FolderFamily, 7> kFamilies = {{
    {"llama", 2048, 1e4, BiasStyle::kAttentionBias, WindowStyle::kNone, ExpertStyle::kNone, false,
     0, 0},
    {"mistral", 131'072, 1e4, BiasStyle::kNone, WindowStyle::kAll, ExpertStyle::kNone, false, 0,
     4096},
    {"mixtral", 131'072, 1e6, BiasStyle::kNone, WindowStyle::kAll, ExpertStyle::kMixtral, false, 0,
     0},
    {"qwen2", 32'768, 1e4, BiasStyle::kQkv, WindowStyle::kByLayer, ExpertStyle::kNone, false, 0,
     4096},
    {"qwen3", 32'768, 1e4, BiasStyle::kAttentionBias, WindowStyle::kByLayer, ExpertStyle::kNone,
     true, 128, 4096},
    {"qwen2_moe", 32'768, 1e4, BiasStyle::kQkvByKey, WindowStyle::kAllIfUsed, ExpertStyle::kQwen,
     false, 0, 4096},
    {"qwen3_moe", 32'768, 1e4, BiasStyle::kAttentionBias, WindowStyle::kAllIfUsed,
     ExpertStyle::kQwen, true, 0, 4096},
}};

const FolderFamily& find_folder_family(const std::string& name, const std::string& where) {
  std::vector<std::string_view> known;
  for (const FolderFamily& family : kFamilies) {
    if (family.name == name) return family;
    known.push_back(family.name);
  }
  core::fail<ConfigError>(where, ": model_type ", core::quote(name),
                          " is not supported, expected one of ", core::list_text(known));
}

// Options that change the result and that weft does not have.
void check_known_options(const JsonKeys& keys) {
  const std::string activation = keys.text_or("hidden_act", "silu");
  check<ConfigError>(activation == "silu" || activation == "swish", keys.where(), ": hidden_act ",
                     core::quote(activation), " is not supported, expected 'silu'");
  const double rotated = keys.real_or("partial_rotary_factor", 1.0);
  check<ConfigError>(rotated == 1.0, keys.where(), ": partial_rotary_factor is ", rotated,
                     ", expected 1");
}

void read_sizes(const JsonKeys& keys, const FolderFamily& family, ModelConfig& config) {
  config.vocab_size = keys.integer("vocab_size");
  config.width = keys.integer("hidden_size");
  config.num_layers = keys.integer("num_hidden_layers");
  config.num_heads = keys.integer("num_attention_heads");
  config.num_kv_heads = keys.integer_or("num_key_value_heads", config.num_heads);
  check<FormatError>(config.num_heads >= 1, keys.where(), ": num_attention_heads is ",
                     config.num_heads, ", expected at least 1");
  const int64_t head_dim = family.head_dim > 0 ? family.head_dim : config.width / config.num_heads;
  config.head_dim = keys.integer_or("head_dim", head_dim);
  config.ffn_width = keys.integer("intermediate_size");
  config.norm_eps = keys.real("rms_norm_eps");
  config.is_tied = keys.flag_or("tie_word_embeddings", false);
}

void read_biases(const JsonKeys& keys, BiasStyle style, ModelConfig& config) {
  if (style == BiasStyle::kAttentionBias) {
    config.has_qkv_bias = keys.flag_or("attention_bias", false);
    config.has_output_bias = config.has_qkv_bias;
    config.has_mlp_bias = keys.flag_or("mlp_bias", false);
  } else if (style != BiasStyle::kNone) {
    config.has_qkv_bias = style == BiasStyle::kQkv || keys.flag_or("qkv_bias", true);
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

void read_windows(const JsonKeys& keys, const FolderFamily& family, ModelConfig& config) {
  if (family.window == WindowStyle::kNone) return;
  const bool is_used =
      family.window == WindowStyle::kAll || keys.flag_or("use_sliding_window", false);
  const int64_t window = is_used ? window_size(keys, family.default_window) : 0;
  const bool is_by_layer = family.window == WindowStyle::kByLayer;
  const Json* types = keys.find("layer_types");
  if (is_by_layer && types != nullptr) {
    config.windows =
        windows_of_types(*types, window, config.num_layers, keys.where() + ": layer_types");
    return;
  }
  if (window == 0) return;
  const int64_t first = is_by_layer ? keys.integer_or("max_window_layers", 28) : 0;
  for (int64_t layer = 0; layer < std::min(config.num_layers, kMaxLayers); ++layer) {
    config.windows.push_back(layer >= first ? window : 0);
  }
}

void read_qwen_experts(const JsonKeys& keys, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  experts.num_experts = keys.integer("num_experts");
  if (experts.num_experts == 0) return;
  experts.experts_per_token = keys.integer("num_experts_per_tok");
  experts.ffn_width = keys.integer("moe_intermediate_size");
  experts.normalizes_weights = keys.flag_or("norm_topk_prob", false);
  experts.layer_step = keys.integer_or("decoder_sparse_step", 1);
  if (config.family == "qwen2_moe") {
    experts.shared_ffn_width = keys.integer("shared_expert_intermediate_size");
    check<FormatError>(experts.shared_ffn_width >= 1, keys.where(),
                       ": shared_expert_intermediate_size is ", experts.shared_ffn_width,
                       ", expected at least 1");
  }
  const Json* plain = keys.find("mlp_only_layers");
  if (plain == nullptr) return;
  const std::string where = keys.where() + ": mlp_only_layers";
  check<FormatError>(plain->is_array(), where, ": expected a list");
  for (const Json& layer : *plain) experts.plain_layers.push_back(core::to_int64(layer, where));
}

void read_experts(const JsonKeys& keys, ExpertStyle style, ModelConfig& config) {
  if (style == ExpertStyle::kQwen) read_qwen_experts(keys, config);
  if (style != ExpertStyle::kMixtral) return;
  config.experts.num_experts = keys.integer_or("num_local_experts", 8);
  check<FormatError>(config.experts.num_experts >= 1, keys.where(), ": num_local_experts is ",
                     config.experts.num_experts, ", expected at least 1");
  config.experts.experts_per_token = keys.integer_or("num_experts_per_tok", 2);
  config.experts.ffn_width = config.ffn_width;
}

}  // namespace

ModelConfig config_from_json(const Json& json, const std::string& where) {
  const JsonKeys keys(json, where);
  ModelConfig config;
  config.family = core::to_string(core::require(json, "model_type", where), where);
  const FolderFamily& family = find_folder_family(config.family, where);
  check_known_options(keys);
  read_sizes(keys, family, config);
  read_rope(keys, {family.positions, family.rope_base}, config);
  if (family.has_head_norms) config.head_norms = HeadNorms::kEachHead;
  read_biases(keys, family.bias, config);
  read_windows(keys, family, config);
  read_experts(keys, family.experts, config);
  return config;
}

ModelConfig config_from_folder(const io::TensorFile& file) {
  const std::string where = folder_of(file) + "/config.json";
  return config_from_json(core::parse_json(core::read_text_file(where, kMaxConfigBytes), where),
                          where);
}

}  // namespace weft::models
