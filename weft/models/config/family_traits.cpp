// What follows from a family's row.
#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/config/mixers/config_gemma4.h"

namespace weft::models {

void take_family_traits(ModelConfig& config) {
  const FamilyInfo& family = family_info(config);
  const BiasKeys biases = family.biases;
  config.has_output_bias = biases == BiasKeys::kAttention;
  config.has_qkv_bias = biases == BiasKeys::kQkvAlways || biases == BiasKeys::kQkv ||
                        biases == BiasKeys::kAttention || biases == BiasKeys::kQkvIfNotFalse;
  config.head_norms = family.head_norms;
  config.norm_placement = family.norm_placement;
  config.norm_offset = family.norm_offset;
  config.gating = {family.activation, family.gate_limit};
  config.has_sinks = family.has_sinks;
  config.gates_attention = family.gates_attention;
  config.turns_neighbours = family.turns_neighbours;
  if (family.rotated_part != 1 && config.head_dim > 0) {
    config.rope_dims =
        static_cast<int64_t>(static_cast<double>(config.head_dim) * family.rotated_part);
  }
  if (family.experts.has_routed_keys) {
    config.experts.scores = family.experts.routing.scores;
    config.experts.has_choice_bias = config.experts.scores == RouterScores::kSigmoid;
    config.experts.best_of_group = family.experts.routing.best_of_group;
    config.experts.gates_shared = false;
  }
  config.experts.has_router_bias = config.experts.has_bias = family.experts.has_biases;
  config.window_rope_base = family.window_rope_base;
  for (const CapKey& key : kCapKeys) config.*key.member = family.caps.*key.fallback;
  if (family.scales_embedding) {
    config.embedding_scale = std::sqrt(static_cast<double>(config.width));
  }
  if (has_gemma4_layers(family)) take_gemma4_traits(family, config);
  if (family.no_rope_interval > 0) {
    config.layers_without_rope = every_layer(config.num_layers, family.no_rope_interval);
  }
}

std::vector<int64_t> usual_windows(const FamilyWindows& windows, int64_t size, int64_t num_layers) {
  std::vector<int64_t> all(static_cast<size_t>(std::clamp<int64_t>(num_layers, 0, kMaxLayers)),
                           size);
  if (windows.layers != WindowLayers::kAllButEvery) return all;
  for (const int64_t layer : every_layer(num_layers, windows.interval)) {
    all[static_cast<size_t>(layer)] = 0;
  }
  return all;
}

double gguf_attention_scale(const ModelConfig& config) {
  if (config.num_layers != family_info(config).layers_scaled_by_width) return 0;
  return 1 / std::sqrt(static_cast<double>(config.width) / static_cast<double>(config.num_heads));
}

bool states_unscaled_positions(const ModelConfig& config) {
  return config.rope_scaling.type == nn::RopeType::kLinear &&
         !family_info(config).counts_scaled_positions;
}

int64_t rotated_dims(const ModelConfig& config) {
  return config.rope_dims > 0 ? config.rope_dims : config.head_dim;
}

std::vector<int64_t> every_layer(int64_t num_layers, int64_t interval) {
  std::vector<int64_t> layers;
  const int64_t end = std::min(num_layers, kMaxLayers);
  for (int64_t layer = interval - 1; layer < end; layer += interval) layers.push_back(layer);
  return layers;
}

double scale_from_file(const ScaleKey& key, double number) {
  return key.is_divisor ? 1 / number : number;
}

double scale_in_file(const ScaleKey& key, double factor) {
  if (!key.is_divisor) return factor;
  // Of the numbers around the inverse one gives the factor to the bit, as a rule.
  const double inverse = 1 / factor;
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double divisor : {std::nextafter(inverse, 0), std::nextafter(inverse, infinity)}) {
    if (1 / inverse != factor && 1 / divisor == factor) return divisor;
  }
  return inverse;
}

std::vector<const FamilyInfo*> gguf_families(std::string_view architecture,
                                             const std::string& where) {
  std::vector<const FamilyInfo*> found;
  std::vector<std::string_view> known;
  for (const FamilyInfo& family : families()) {
    if (family.gguf.empty()) continue;
    if (family.gguf == architecture) found.push_back(&family);
    if (std::ranges::find(known, family.gguf) == known.end()) known.push_back(family.gguf);
  }
  core::check<core::ConfigError>(!found.empty(), where, ": architecture ",
                                 core::quote(std::string(architecture)),
                                 " is not supported, expected one of ", core::list_text(known));
  return found;
}

}  // namespace weft::models
