#include "weft/models/config/families.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/core/error.h"

namespace weft::models {
namespace {

constexpr FamilyWindows kEveryLayer = {WindowLayers::kAll, false, 4096};
constexpr FamilyWindows kEveryLayerIfUsed = {WindowLayers::kAll, true, 4096};
constexpr FamilyWindows kLastLayers = {WindowLayers::kLast, true, 4096};

constexpr FamilyInfo kFamilies[] = {
    {.name = "llama",
     .transformers_class = "LlamaForCausalLM",
     .gguf = "llama",
     .has_paired_rows = true,
     .biases = BiasKeys::kAttentionAndMlp},
    {.name = "mistral",
     .transformers_class = "MistralForCausalLM",
     .gguf = "llama",
     .has_paired_rows = true,
     .max_positions = 131'072,
     .windows = kEveryLayer},
    {.name = "mixtral",
     .transformers_class = "MixtralForCausalLM",
     .gguf = "llama",
     .has_paired_rows = true,
     .max_positions = 131'072,
     .rope_base = 1e6,
     .windows = {WindowLayers::kAll, false, 0},
     .experts = {.count_key = "num_local_experts", .has_mixtral_names = true}},
    {.name = "qwen2",
     .transformers_class = "Qwen2ForCausalLM",
     .gguf = "qwen2",
     .max_positions = 32'768,
     .biases = BiasKeys::kQkvAlways,
     .windows = kLastLayers},
    {.name = "qwen3",
     .transformers_class = "Qwen3ForCausalLM",
     .gguf = "qwen3",
     .max_positions = 32'768,
     .head_dim = 128,
     .biases = BiasKeys::kAttentionAndMlp,
     .head_norms = HeadNorms::kEachHead,
     .windows = kLastLayers},
    {.name = "qwen2_moe",
     .transformers_class = "Qwen2MoeForCausalLM",
     .gguf = "qwen2moe",
     .max_positions = 32'768,
     .biases = BiasKeys::kQkv,
     .windows = kEveryLayerIfUsed,
     .experts = {.count_key = "num_experts",
                 .has_own_width = true,
                 .has_shared = true,
                 .is_normalized_in_gguf = false}},
    {.name = "qwen3_moe",
     .transformers_class = "Qwen3MoeForCausalLM",
     .gguf = "qwen3moe",
     .max_positions = 32'768,
     .biases = BiasKeys::kAttentionAndMlp,
     .head_norms = HeadNorms::kEachHead,
     .windows = kEveryLayerIfUsed,
     .experts = {.count_key = "num_experts", .has_own_width = true}},
    {.name = "smollm3",
     .transformers_class = "SmolLM3ForCausalLM",
     .gguf = "smollm3",
     .has_paired_rows = true,
     .max_positions = 32'768,
     .rope_base = 2e6,
     .is_tied = true,
     .biases = BiasKeys::kAttentionAndMlp,
     .windows = {WindowLayers::kWithoutRope, true, 0},
     .no_rope_interval = 4},
    {.name = "granite",
     .transformers_class = "GraniteForCausalLM",
     .gguf = "granite",
     .has_paired_rows = true,
     .biases = BiasKeys::kAttentionAndMlp,
     .has_scales = true},
    {.name = "phi3",
     .transformers_class = "Phi3ForCausalLM",
     .gguf = "phi3",
     .max_positions = 4096,
     .windows = {WindowLayers::kAll, false, 0},
     .has_partial_rope = true,
     .needs_gguf_window = true,
     .has_fused_rows = true},
    {.name = "olmo2",
     .transformers_class = "Olmo2ForCausalLM",
     .gguf = "olmo2",
     .biases = BiasKeys::kAttentionAndMlp,
     .head_norms = HeadNorms::kAllHeads,
     .norm_placement = NormPlacement::kAfter},
};

}  // namespace

std::span<const FamilyInfo> families() { return kFamilies; }

std::vector<std::string_view> family_names() {
  std::vector<std::string_view> names;
  for (const FamilyInfo& family : kFamilies) names.push_back(family.name);
  return names;
}

const FamilyInfo* find_family_info(std::string_view name) {
  const auto* found = std::ranges::find_if(
      kFamilies, [&](const FamilyInfo& family) { return family.name == name; });
  return found == std::end(kFamilies) ? nullptr : found;
}

const FamilyInfo& family_info(const ModelConfig& config) {
  const FamilyInfo* found = find_family_info(config.family);
  core::check<core::InternalError>(found != nullptr, "models: unknown family ",
                                   core::quote(config.family));
  return *found;
}

void take_family_traits(ModelConfig& config) {
  const FamilyInfo& family = family_info(config);
  config.has_qkv_bias = family.biases == BiasKeys::kQkvAlways || family.biases == BiasKeys::kQkv;
  config.head_norms = family.head_norms;
  config.norm_placement = family.norm_placement;
  if (family.no_rope_interval > 0) {
    config.layers_without_rope = every_layer(config.num_layers, family.no_rope_interval);
  }
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
  for (const FamilyInfo& family : kFamilies) {
    if (family.gguf == architecture) found.push_back(&family);
    if (std::ranges::find(known, family.gguf) == known.end()) known.push_back(family.gguf);
  }
  core::check<core::ConfigError>(!found.empty(), where, ": architecture ",
                                 core::quote(std::string(architecture)),
                                 " is not supported, expected one of ", core::list_text(known));
  return found;
}

}  // namespace weft::models
