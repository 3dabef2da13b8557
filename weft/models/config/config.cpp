#include "weft/models/config/config.h"

#include <algorithm>
#include <cmath>

#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/config/sources.h"

namespace weft::models {
namespace {

using core::check;
using core::FormatError;

constexpr int64_t kMaxExperts = 10'000;
constexpr int64_t kMaxTaps = 1'000;
constexpr int64_t kMaxDeltaSize = int64_t{1} << 20;
constexpr int64_t kMaxSize = int64_t{1} << 31;

void check_size(int64_t value, int64_t limit, const char* name, const std::string& where) {
  check<FormatError>(value >= 1 && value <= limit, where, ": config: ", name, " is ", value,
                     ", expected 1 to ", limit);
}

void check_experts(const ExpertsConfig& experts, int64_t num_layers, const std::string& where) {
  if (experts.num_experts == 0) return;
  check_size(experts.num_experts, kMaxExperts, "number of experts", where);
  check_size(experts.experts_per_token, experts.num_experts, "number of experts per token", where);
  check_size(experts.ffn_width, kMaxSize, "ffn width of an expert", where);
  check<FormatError>(experts.shared_ffn_width >= 0 && experts.shared_ffn_width <= kMaxSize, where,
                     ": config: ffn width of the shared expert is ", experts.shared_ffn_width,
                     ", expected 0 to ", kMaxSize);
  check<FormatError>(experts.num_groups >= 1 && experts.num_experts % experts.num_groups == 0 &&
                         experts.groups_per_token >= 1 &&
                         experts.groups_per_token <= experts.num_groups,
                     where, ": config: ", experts.groups_per_token, " of ", experts.num_groups,
                     " groups of ", experts.num_experts, " experts, expected a divisor");
  check<FormatError>(std::isfinite(experts.weights_scale) && experts.weights_scale > 0, where,
                     ": config: scale of experts' weights ", experts.weights_scale,
                     ", expected a positive number");
  check_size(experts.layer_step, kMaxLayers, "step of layers with experts", where);
  for (const int64_t layer : experts.plain_layers) {
    check<FormatError>(layer >= 0 && layer < num_layers, where, ": config: layer ", layer,
                       " without experts, expected 0 to ", num_layers - 1);
  }
}

void check_windows(const ModelConfig& config, const std::string& where) {
  if (config.windows.empty()) return;
  check<FormatError>(static_cast<int64_t>(config.windows.size()) == config.num_layers, where,
                     ": config: attention of ", config.windows.size(), " layers, expected ",
                     config.num_layers);
  for (const int64_t window : config.windows) {
    check<FormatError>(window >= 0, where, ": config: sliding window is ", window,
                       ", expected at least 1");
  }
}

void check_delta(const nn::DeltaHeads& heads, const std::string& where) {
  check_size(heads.num_key_heads, kMaxDeltaSize, "number of a delta net's key heads", where);
  check_size(heads.num_value_heads, kMaxDeltaSize, "number of a delta net's value heads", where);
  check_size(heads.key_dim, kMaxDeltaSize, "head dim of a delta net's keys", where);
  check_size(heads.value_dim, kMaxDeltaSize / heads.num_value_heads,
             "head dim of a delta net's values", where);
  check<FormatError>(heads.num_value_heads % heads.num_key_heads == 0, where,
                     ": config: ", heads.num_value_heads, " value heads over ", heads.num_key_heads,
                     " key heads of a delta net, expected a multiple");
}

void check_recurrent(const ModelConfig& config, const std::string& where) {
  const RecurrentConfig& recurrent = config.recurrent;
  if (recurrent.layers.empty()) return;
  int64_t last = -1;
  for (const int64_t layer : recurrent.layers) {
    check<FormatError>(layer > last && layer < config.num_layers, where,
                       ": config: recurrent layer ", layer, ", expected ascending numbers up to ",
                       config.num_layers - 1);
    last = layer;
  }
  check_size(recurrent.num_taps, kMaxTaps, "number of a convolution's taps", where);
  if (recurrent.kind == RecurrentKind::kGatedDelta) check_delta(recurrent.heads, where);
}

void check_rope(const ModelConfig& config, const std::string& where) {
  check<FormatError>(std::isfinite(config.rope_base) && config.rope_base > 0, where,
                     ": config: rope base ", config.rope_base, ", expected a positive number");
  check<FormatError>(std::isfinite(config.window_rope_base) && config.window_rope_base >= 0, where,
                     ": config: rope base of layers with a window ", config.window_rope_base,
                     ", expected a positive number");
  check<FormatError>(
      config.rope_dims >= 0 && config.rope_dims <= config.head_dim && config.rope_dims % 2 == 0,
      where, ": config: rope over ", config.rope_dims, " of ", config.head_dim,
      " head dims, expected an even number of at most as many");
  const auto num_factors = static_cast<int64_t>(config.rope_scaling.short_factors.size());
  check<FormatError>(config.rope_scaling.type != nn::RopeType::kLongRope ||
                         num_factors == rotated_dims(config) / 2,
                     where, ": config: ", num_factors, " factors of rope's frequencies, expected ",
                     rotated_dims(config) / 2);
  int64_t last = -1;
  for (const int64_t layer : config.layers_without_rope) {
    check<FormatError>(layer > last && layer < config.num_layers, where, ": config: layer ", layer,
                       " without rope, expected ascending numbers up to ", config.num_layers - 1);
    last = layer;
  }
}

void check_scales(const ModelConfig& config, const std::string& where) {
  const auto check_scale = [&](double scale, const char* name) {
    check<FormatError>(std::isfinite(scale) && scale > 0, where, ": config: ", name, " scale ",
                       scale, ", expected a positive number");
  };
  check_scale(config.embedding_scale, "embedding");
  if (config.attention_scale != 0) check_scale(config.attention_scale, "attention");
  check_scale(config.residual_scale, "residual");
  check_scale(config.logits_scale, "logits");
  const auto check_cap = [&](double cap, const char* name) {
    check<FormatError>(std::isfinite(cap) && cap >= 0, where, ": config: cap of ", name, " is ",
                       cap, ", expected a positive number, or 0 for none");
  };
  check_cap(config.score_cap, "scores");
  check_cap(config.logits_cap, "logits");
  const bool grows = config.query_growth != 0;
  check<FormatError>(std::isfinite(config.query_growth) && config.query_growth >= 0, where,
                     ": config: growth of queries ", config.query_growth,
                     ", expected a positive number");
  check<FormatError>(!grows || config.rope_scaling.original_positions > 0, where,
                     ": config: queries grow behind the original positions, but rope's scaling "
                     "has none");
}

void check_latent(const ModelConfig& config, const std::string& where) {
  const LatentConfig& latent = config.latent;
  if (!latent.is_used()) return;
  check_size(latent.kv_rank, kMaxSize, "rank of keys and values", where);
  check<FormatError>(latent.query_rank >= 0 && latent.query_rank <= kMaxSize, where,
                     ": config: rank of queries is ", latent.query_rank, ", expected 0 to ",
                     kMaxSize);
  check_size(latent.value_dim, kMaxSize / config.num_heads, "head dim of values", where);
  check_size(config.rope_dims, config.head_dim - 1, "number of head dims that rope turns", where);
  check<FormatError>(config.num_kv_heads == config.num_heads, where,
                     ": config: ", config.num_kv_heads, " kv heads made of a latent, expected ",
                     config.num_heads, " as there are heads");
}

void check_full_layers(const ModelConfig& config, const std::string& where) {
  const FullLayersConfig& full = config.full_layers;
  if (!full.is_used()) return;
  check_size(full.head_dim, kMaxSize / config.num_heads, "head dim of layers without a window",
             where);
  check<FormatError>(full.head_dim % 2 == 0, where, ": config: head dim ", full.head_dim,
                     " of layers without a window, expected an even number for rope");
  check_size(full.num_kv_heads, config.num_heads, "number of kv heads of layers without a window",
             where);
  check<FormatError>(config.num_heads % full.num_kv_heads == 0, where,
                     ": config: ", config.num_heads, " heads over ", full.num_kv_heads,
                     " kv heads of layers without a window, expected a multiple");
}

// After windows.
void check_reusing(const ModelConfig& config, const std::string& where) {
  const int64_t count = config.reusing.count;
  check<FormatError>(count >= 0 && count < config.num_layers, where, ": config: ", count,
                     " layers with the keys and values of others, expected 0 to ",
                     config.num_layers - 1);
  for (int64_t layer = config.first_reusing(); layer < config.num_layers; ++layer) {
    check<FormatError>(config.kv_layer(layer) >= 0, where, ": config: layer ", layer,
                       " with the keys and values of another: no layer before ",
                       config.first_reusing(), " has a window as it has, expected one");
  }
  if (config.reusing.ffn_width != 0) {
    check_size(config.reusing.ffn_width, kMaxSize, "ffn width of layers with others' keys", where);
  }
  const LayerInputsConfig& inputs = config.layer_inputs;
  if (!inputs.is_used()) return;
  check_size(inputs.width, kMaxSize / config.num_layers, "width of layers' own inputs", where);
  check_size(inputs.vocab_size, kMaxSize, "vocabulary size of layers' own inputs", where);
}

}  // namespace

int64_t ModelConfig::window(int64_t layer) const {
  return windows.empty() ? 0 : windows.at(static_cast<size_t>(layer));
}

bool ModelConfig::has_experts(int64_t layer) const {
  const auto& plain = experts.plain_layers;
  return experts.num_experts > 0 && (layer + 1) % experts.layer_step == 0 &&
         std::find(plain.begin(), plain.end(), layer) == plain.end();
}

bool ModelConfig::is_recurrent(int64_t layer) const {
  return std::ranges::binary_search(recurrent.layers, layer);
}

int64_t ModelConfig::head_dim_of(int64_t layer) const {
  return has_full_heads(layer) ? full_layers.head_dim : head_dim;
}

int64_t ModelConfig::num_kv_heads_of(int64_t layer) const {
  return has_full_heads(layer) ? full_layers.num_kv_heads : num_kv_heads;
}

int64_t ModelConfig::kv_layer(int64_t layer) const {
  if (!reuses_keys(layer)) return layer;
  const bool has_window = window(layer) != 0;
  int64_t source = first_reusing() - 1;
  while (source >= 0 && (window(source) != 0) != has_window) --source;
  return source;
}

void check_config(const ModelConfig& config, const std::string& where) {
  check_size(config.vocab_size, kMaxSize, "vocabulary size", where);
  check_size(config.width, kMaxSize, "width", where);
  check_size(config.num_layers, kMaxLayers, "number of layers", where);
  check_size(config.num_heads, kMaxSize, "number of heads", where);
  check_size(config.num_kv_heads, config.num_heads, "number of kv heads", where);
  check_size(config.head_dim, kMaxSize, "head dim", where);
  check_size(config.ffn_width, kMaxSize, "ffn width", where);
  check_size(config.max_positions, kMaxSize, "number of positions", where);
  check<FormatError>(config.num_heads % config.num_kv_heads == 0, where,
                     ": config: ", config.num_heads, " heads over ", config.num_kv_heads,
                     " kv heads, expected a multiple");
  check<FormatError>(config.head_dim % 2 == 0, where, ": config: head dim ", config.head_dim,
                     ", expected an even number for rope");
  check<FormatError>(config.head_dim <= kMaxSize / config.num_heads, where,
                     ": config: ", config.num_heads, " heads of ", config.head_dim,
                     ", expected at most ", kMaxSize, " features");
  check<FormatError>(std::isfinite(config.norm_eps) && config.norm_eps > 0, where,
                     ": config: norm epsilon ", config.norm_eps, ", expected a positive number");
  check_rope(config, where);
  nn::check_rope_scaling(config.rope_scaling, where + ": config");
  check_scales(config, where);
  check_windows(config, where);
  check_full_layers(config, where);
  check_reusing(config, where);
  check_latent(config, where);
  check_experts(config.experts, config.num_layers, where);
  check_recurrent(config, where);
}

ModelConfig read_config(const io::TensorFile& file) {
  ModelConfig config = file.is_gguf() ? config_from_gguf(file) : config_from_folder(file);
  check_config(config, file.path());
  return config;
}

}  // namespace weft::models
