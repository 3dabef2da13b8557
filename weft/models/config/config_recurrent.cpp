// Layers without attention, and the keys of the families that have some.
#include "weft/models/config/config_recurrent.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "weft/core/error.h"
#include "weft/models/config/mixers/config_delta.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::FormatError;
using core::Json;

constexpr const char* kLfm2NormEpsKey = "norm_eps";
constexpr const char* kAttention = "full_attention";

// What `layer_types` calls a layer without attention.
const char* own_type(RecurrentKind kind) {
  return kind == RecurrentKind::kShortConvolution ? "conv" : "linear_attention";
}

void read_layer_types(const Json& types, const std::string& where, ModelConfig& config) {
  check<FormatError>(types.is_array() && static_cast<int64_t>(types.size()) == config.num_layers,
                     where, ": expected a list of ", config.num_layers, " layers");
  const std::string own = own_type(config.recurrent.kind);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string type = core::to_string(types[static_cast<size_t>(layer)], where);
    check<ConfigError>(type == own || type == kAttention, where, ": ", core::quote(type),
                       " is not supported, expected one of [", own, ", ", kAttention, "]");
    if (type == own) config.recurrent.layers.push_back(layer);
  }
}

// Older files list the layers with attention.
void read_attention_layers(const JsonKeys& keys, ModelConfig& config) {
  const Json* list = keys.find("full_attn_idxs");
  if (list == nullptr) return;
  const std::string where = keys.where() + ": full_attn_idxs";
  check<FormatError>(list->is_array(), where, ": expected a list");
  std::set<int64_t> with_attention;
  for (const Json& layer : *list) with_attention.insert(core::to_int64(layer, where));
  for (int64_t layer = 0; layer < std::min(config.num_layers, kMaxLayers); ++layer) {
    if (!with_attention.contains(layer)) config.recurrent.layers.push_back(layer);
  }
}

// Two thirds of what the file says, times a factor, rounded up, unless it says the width itself.
int64_t lfm2_ffn_width(const JsonKeys& keys, int64_t stated) {
  if (!keys.flag_or("block_auto_adjust_ff_dim", true)) return stated;
  const int64_t multiple = keys.integer_or("block_multiple_of", 256);
  const double factor = keys.real_or("block_ffn_dim_multiplier", 1);
  check<FormatError>(multiple >= 1 && multiple <= stated, keys.where(), ": block_multiple_of is ",
                     multiple, ", expected 1 to ", stated);
  check<FormatError>(std::isfinite(factor) && factor > 0 && factor <= 1e3, keys.where(),
                     ": block_ffn_dim_multiplier is ", factor, ", expected a positive number");
  const auto two_thirds = static_cast<int64_t>(2 * static_cast<double>(stated) / 3);
  const auto width = static_cast<int64_t>(factor * static_cast<double>(two_thirds));
  return (width + multiple - 1) / multiple * multiple;
}

void read_lfm2(const JsonKeys& keys, ModelConfig& config) {
  if (!keys.has("layer_types")) read_attention_layers(keys, config);
  config.recurrent.num_taps = keys.integer_or("conv_L_cache", 3);
  check<ConfigError>(!keys.flag_or("conv_bias", false), keys.where(),
                     ": conv_bias is true, which is not supported, expected false");
  config.norm_eps = keys.real_or(kLfm2NormEpsKey, 1e-5);
  config.is_tied = keys.flag_or("tie_embedding", config.is_tied);
  const int64_t stated = keys.integer_or("block_ff_dim", config.ffn_width);
  check<FormatError>(stated >= 1 && stated <= int64_t{1} << 31, keys.where(), ": ffn width is ",
                     stated, ", expected 1 to ", int64_t{1} << 31);
  config.ffn_width = lfm2_ffn_width(keys, stated);
}

void read_lfm2(const GgufKeys& keys, const std::string& architecture, ModelConfig& config) {
  config.recurrent.num_taps = keys.integer(architecture + "." + kTapsGgufKey);
  const std::string key = architecture + ".attention.head_count_kv";
  const auto kv_heads = keys.integers(key);
  const int64_t num_listed = kv_heads ? static_cast<int64_t>(kv_heads->size()) : 0;
  check<FormatError>(num_listed >= 1 && num_listed == config.num_layers, keys.path(), ": key '",
                     key, "': expected a list of ", config.num_layers, " layers");
  config.num_kv_heads = std::ranges::max(*kv_heads);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const int64_t own = (*kv_heads)[static_cast<size_t>(layer)];
    check<FormatError>(own == 0 || own == config.num_kv_heads, keys.path(), ": key '", key,
                       "': ", own, " kv heads of layer ", layer, ", expected 0 or ",
                       config.num_kv_heads);
    if (own == 0) config.recurrent.layers.push_back(layer);
  }
}

void add_lfm2(const ModelConfig& config, nlohmann::json& object) {
  object["conv_L_cache"] = config.recurrent.num_taps;
  object["conv_bias"] = false;
  object["block_auto_adjust_ff_dim"] = false;
  object[kLfm2NormEpsKey] = config.norm_eps;
}

}  // namespace

bool has_lfm2_names(const FamilyInfo& family) {
  return family.recurrent == RecurrentKind::kShortConvolution;
}

bool has_delta_nets(const FamilyInfo& family) {
  return family.recurrent == RecurrentKind::kGatedDelta;
}

void read_recurrent(const JsonKeys& keys, const FamilyInfo& family, ModelConfig& config) {
  if (!family.recurrent) return;
  config.recurrent.kind = *family.recurrent;
  const Json* types = keys.find("layer_types");
  if (types != nullptr) read_layer_types(*types, keys.where() + ": layer_types", config);
  if (has_lfm2_names(family)) return read_lfm2(keys, config);
  read_delta(keys, config);
}

void read_recurrent(const GgufKeys& keys, const std::string& architecture, ModelConfig& config) {
  const FamilyInfo& family = family_info(config);
  if (!family.recurrent) return;
  config.recurrent.kind = *family.recurrent;
  if (has_lfm2_names(family)) return read_lfm2(keys, architecture, config);
  read_delta(keys, architecture, config);
}

void add_recurrent(const ModelConfig& config, const FamilyInfo& family, nlohmann::json& object) {
  if (!family.recurrent) return;
  nlohmann::json types = nlohmann::json::array();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    types.push_back(config.is_recurrent(layer) ? own_type(*family.recurrent) : kAttention);
  }
  object["layer_types"] = std::move(types);
  if (has_lfm2_names(family)) return add_lfm2(config, object);
  add_delta(config.recurrent, object);
}

}  // namespace weft::models
