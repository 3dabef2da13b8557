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
     .experts = {.count_key = "num_local_experts", .names = ExpertNames::kMixtral}},
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
     .fused_rows = FusedRows::kAll},
    {.name = "olmo2",
     .transformers_class = "Olmo2ForCausalLM",
     .gguf = "olmo2",
     .biases = BiasKeys::kAttentionAndMlp,
     .head_norms = HeadNorms::kAllHeads,
     .norm_placement = NormPlacement::kAfter},
    {.name = "gemma2",
     .transformers_class = "Gemma2ForCausalLM",
     .gguf = "gemma2",
     .max_positions = 8192,
     .head_dim = 256,
     .is_tied = true,
     .biases = BiasKeys::kAttentionAndMlp,
     .norm_placement = NormPlacement::kBoth,
     .windows = {WindowLayers::kAllButEvery, false, 4096, 2, 4096},
     .norm_offset = 1,
     .activation = nn::Activation::kGeluTanh,
     .scales_embedding = true,
     .has_query_scalar = true,
     .layers_scaled_by_width = 46,
     .caps = {true, 50, 30}},
    {.name = "gemma3_text",
     .transformers_class = "Gemma3ForCausalLM",
     .gguf = "gemma3",
     .max_positions = 131'072,
     .rope_base = 1e6,
     .head_dim = 256,
     .is_tied = true,
     .biases = BiasKeys::kAttentionAndMlp,
     .head_norms = HeadNorms::kEachHead,
     .norm_placement = NormPlacement::kBoth,
     .windows = {WindowLayers::kAllButEvery, false, 4096, 6},
     .norm_offset = 1,
     .activation = nn::Activation::kGeluTanh,
     .scales_embedding = true,
     .has_query_scalar = true,
     .layers_scaled_by_width = 62,
     .caps = {true, 0, 0},
     .window_rope_base = 10'000,
     .counts_scaled_positions = true},
    {.name = "gpt_oss",
     .transformers_class = "GptOssForCausalLM",
     .gguf = "gpt-oss",
     .max_positions = 131'072,
     .rope_base = 150'000,
     .head_dim = 64,
     .biases = BiasKeys::kAttention,
     .windows = {WindowLayers::kAllButEvery, false, 128, 2, 0},
     .experts = {.count_key = "num_local_experts", .names = ExpertNames::kOss, .has_biases = true},
     .activation = nn::Activation::kClamped,
     .gate_limit = 7,
     .has_sinks = true,
     .truncates_yarn = false,
     .has_late_ffn_norm_name = true},
    {.name = "ministral3",
     .transformers_class = "Ministral3ForCausalLM",
     .gguf = "mistral3",
     .has_paired_rows = true,
     .max_positions = 262'144,
     .rope_base = 1e6,
     .head_dim = 128,
     .windows = {WindowLayers::kAll, false, 0},
     .has_query_growth = true},
    {.name = "glm4",
     .transformers_class = "Glm4ForCausalLM",
     .gguf = "glm4",
     .max_positions = 131'072,
     .head_dim = 128,
     .biases = BiasKeys::kQkvIfNotFalse,
     .norm_placement = NormPlacement::kBoth,
     .has_partial_rope = true,
     .fused_rows = FusedRows::kGateUp,
     .turns_neighbours = true,
     .rotated_part = 0.5,
     .has_glm_norm_names = true,
     .has_further_layers = true},
    {.name = "glm4_moe",
     .transformers_class = "Glm4MoeForCausalLM",
     .gguf = "glm4moe",
     .max_positions = 131'072,
     .biases = BiasKeys::kQkvIfTrue,
     .experts = {.count_key = "n_routed_experts", .has_own_width = true, .has_routed_keys = true},
     .has_partial_rope = true,
     .rotated_part = 0.5,
     .has_head_norms_key = true,
     .has_late_ffn_norm_name = true,
     .has_further_layers = true},
    {.name = "lfm2",
     .transformers_class = "Lfm2ForCausalLM",
     .gguf = "lfm2",
     .max_positions = 128'000,
     .rope_base = 1e6,
     .is_tied = true,
     .head_norms = HeadNorms::kEachHead,
     .recurrent = RecurrentKind::kShortConvolution},
    {.name = "qwen3_next",
     .transformers_class = "Qwen3NextForCausalLM",
     .gguf = "qwen3next",
     .max_positions = 32'768,
     .head_dim = 256,
     .biases = BiasKeys::kAttentionAndMlp,
     .head_norms = HeadNorms::kEachHead,
     .experts = {.count_key = "num_experts",
                 .has_own_width = true,
                 .has_shared = true,
                 .is_normalized = true},
     .has_partial_rope = true,
     .norm_offset = 1,
     .fused_rows = FusedRows::kDeltaGroups,
     .rotated_part = 0.25,
     .has_late_ffn_norm_name = true,
     .has_further_layers = true,
     .recurrent = RecurrentKind::kGatedDelta,
     .gates_attention = true},
    {.name = "qwen3_5_text",
     .transformers_class = "Qwen3_5ForCausalLM",
     .gguf = "",
     .max_positions = 32'768,
     .head_dim = 256,
     .biases = BiasKeys::kAttentionAndMlp,
     .head_norms = HeadNorms::kEachHead,
     .has_partial_rope = true,
     .norm_offset = 1,
     .rotated_part = 0.25,
     .has_further_layers = true,
     .around = "qwen3_5",
     .recurrent = RecurrentKind::kGatedDelta,
     .gates_attention = true},
    {.name = "qwen3_5_moe_text",
     .transformers_class = "Qwen3_5MoeForCausalLM",
     .gguf = "",
     .max_positions = 32'768,
     .head_dim = 256,
     .biases = BiasKeys::kAttentionAndMlp,
     .head_norms = HeadNorms::kEachHead,
     .experts = {.count_key = "num_experts",
                 .has_own_width = true,
                 .has_shared = true,
                 .is_normalized = true},
     .has_partial_rope = true,
     .norm_offset = 1,
     .rotated_part = 0.25,
     .has_further_layers = true,
     .around = "qwen3_5_moe",
     .recurrent = RecurrentKind::kGatedDelta,
     .gates_attention = true},
    {.name = "deepseek_v3",
     .transformers_class = "DeepseekV3ForCausalLM",
     .gguf = "deepseek2",
     .max_positions = 4096,
     .experts =
         {.count_key = "n_routed_experts",
          .has_own_width = true,
          .has_routed_keys = true,
          .routing = {.num_groups = 8, .groups_per_token = 4, .weights_scale = 2.5, .num_plain = 3},
          .is_normalized_in_gguf = false},
     .latent = {512, 1536, 128, 64, 128, true},
     .turns_neighbours = true,
     .has_further_layers = true},
    {.name = "deepseek_v2",
     .transformers_class = "DeepseekV2ForCausalLM",
     .gguf = "deepseek2",
     .experts = {.count_key = "n_routed_experts",
                 .has_own_width = true,
                 .has_routed_keys = true,
                 .routing = {.scores = RouterScores::kSoftmax,
                             .best_of_group = 1,
                             .num_shared = 2,
                             .num_plain = 0,
                             .is_never_normalized = true,
                             .has_method_key = true},
                 .is_normalized_in_gguf = false},
     .latent = {512, 1536, 128, 64, 128},
     .turns_neighbours = true},
    {.name = "glm4_moe_lite",
     .transformers_class = "Glm4MoeLiteForCausalLM",
     .gguf = "deepseek2",
     .max_positions = 202'752,
     .experts = {.count_key = "n_routed_experts",
                 .has_own_width = true,
                 .has_routed_keys = true,
                 .routing = {.weights_scale = 1.8, .has_layer_list = true},
                 .is_normalized_in_gguf = false},
     .latent = {512, 768, 192, 64, 256, true},
     .turns_neighbours = true,
     .has_further_layers = true},
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
  for (const FamilyInfo& family : kFamilies) {
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
