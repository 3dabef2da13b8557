#include "weft/models/convert/keys/gguf_model_keys.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/config/config_recurrent.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/families.h"
#include "weft/models/config/mixers/config_delta.h"
#include "weft/models/config/mixers/config_gemma4.h"
#include "weft/models/config/mixers/latent_keys.h"
#include "weft/models/convert/keys/gemma4_keys.h"
#include "weft/nn/attention/rope_frequencies.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using nn::RopeScaling;
using nn::RopeType;

constexpr const char* kYarnFastGgufKey = "rope.scaling.yarn_beta_fast";
constexpr const char* kYarnSlowGgufKey = "rope.scaling.yarn_beta_slow";

const FamilyInfo& family_of(const ModelConfig& config, const std::string& where) {
  const FamilyInfo* family = find_family_info(config.family);
  check<ConfigError>(family != nullptr && !family->gguf.empty(), where, ": the family ",
                     core::quote(config.family), " can't be written as GGUF; keep the folder");
  return *family;
}

// Readers refuse a file with tensors that they don't know.
void check_rope_tensors(RopeType type, const FamilyInfo& family, const std::string& where) {
  constexpr std::string_view kKnowDivisors[] = {"llama", "granite", "mistral3"};
  const bool knows_divisors = std::ranges::find(kKnowDivisors, family.gguf) != end(kKnowDivisors);
  check<ConfigError>(type != RopeType::kLlama3 || knows_divisors, where, ": readers of GGUF's ",
                     core::quote(std::string(family.gguf)),
                     " have no rope scaling of Llama 3's kind; keep the folder");
  check<ConfigError>(type != RopeType::kLongRope || family.gguf == "phi3", where,
                     ": readers of GGUF's ", core::quote(std::string(family.gguf)),
                     " have no longrope; keep the folder");
}

void check_rope_in_gguf(const RopeScaling& scaling, const FamilyInfo& family,
                        const std::string& where) {
  check<ConfigError>(
      scaling.type != RopeType::kDynamic, where,
      ": GGUF has no dynamic rope scaling; keep the folder, or take rope_scaling out "
      "of config.json for texts of at most ",
      scaling.original_positions, " tokens");
  const bool is_usual = scaling.truncate || !family.truncates_yarn;
  check<ConfigError>(scaling.type != RopeType::kYarn || is_usual, where,
                     ": GGUF's yarn rope scaling begins and ends at whole dims, but truncate is "
                     "false; keep the folder");
  check_rope_tensors(scaling.type, family, where);
}

bool are_first_layers(const std::vector<int64_t>& layers) {
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

void check_experts_in_gguf(const ModelConfig& config, const FamilyInfo& family,
                           const std::string& where) {
  const ExpertsConfig& experts = config.experts;
  if (experts.num_experts == 0) return;
  check<ConfigError>(
      experts.layer_step == 1 && (experts.plain_layers.empty() || family.experts.has_routed_keys),
      where,
      ": layers without experts beside those that have some can't be written as "
      "GGUF; keep the folder");
  check<ConfigError>(are_first_layers(experts.plain_layers), where,
                     ": GGUF has layers without experts before all that have some, but ",
                     kLayerListFolderKey, " says otherwise; keep the folder");
  const bool is_usual = experts.normalizes_weights == family.experts.is_normalized_in_gguf;
  check<ConfigError>(is_usual || family.experts.has_routed_keys, where, ": norm_topk_prob is ",
                     experts.normalizes_weights ? "true" : "false", ", but readers of GGUF's ",
                     core::quote(std::string(family.gguf)), " take the other; keep the folder");
}

void check_latent_yarn(const ModelConfig& config, const std::string& where) {
  const RopeScaling& scaling = config.rope_scaling;
  if (!config.latent.is_used() || scaling.type != RopeType::kYarn) return;
  check<ConfigError>(scaling.mscale == scaling.mscale_all_dim && scaling.mscale_all_dim != 0 &&
                         !scaling.attention_factor,
                     where, ": GGUF has one number for mscale and mscale_all_dim, which are ",
                     scaling.mscale, " and ", scaling.mscale_all_dim, "; keep the folder");
}

// The step of layers with attention; 0: they have none.
int64_t attention_interval(const ModelConfig& config) {
  for (int64_t interval = 1; interval <= config.num_layers + 1; ++interval) {
    if (layers_between(interval, config.num_layers) == config.recurrent.layers) return interval;
  }
  return 0;
}

void check_options_in_gguf(const ModelConfig& config, const FamilyInfo& family,
                           const std::string& where) {
  const int64_t interval = family.no_rope_interval;
  check<ConfigError>(
      interval == 0 || config.layers_without_rope == every_layer(config.num_layers, interval),
      where, ": readers of GGUF's ", core::quote(std::string(family.gguf)), " leave out rope in ",
      "each layer whose number is a multiple of ", interval,
      ", but no_rope_layers says otherwise; keep the folder");
  check<ConfigError>(!family.latent.is_used() || config.turns_neighbours, where,
                     ": readers of GGUF's ", core::quote(std::string(family.gguf)),
                     " turn neighbouring features, but ", kInterleaveFolderKey,
                     " is false; keep the folder");
  check_latent_yarn(config, where);
  check<ConfigError>(!has_delta_nets(family) || attention_interval(config) > 0, where,
                     ": readers of GGUF's ", core::quote(std::string(family.gguf)),
                     " have attention in every so-many-th layer, but layer_types says otherwise; "
                     "keep the folder");
  check<ConfigError>(
      !family.has_query_scalar || config.attention_scale == gguf_attention_scale(config), where,
      ": readers of GGUF's ", core::quote(std::string(family.gguf)),
      " take the scale of scores from the sizes, but ", kQueryScalarKey,
      " says otherwise; keep the folder");
}

int64_t largest_window(const ModelConfig& config) {
  return config.windows.empty() ? 0 : std::ranges::max(config.windows);
}

void check_uniform_windows(const ModelConfig& config, const FamilyInfo& family,
                           const std::string& where) {
  const auto& windows = config.windows;
  const auto usual = usual_windows(family.windows, largest_window(config), config.num_layers);
  const bool is_patterned = family.windows.layers == WindowLayers::kAllButEvery;
  const bool is_uniform = is_patterned ? windows == usual
                                       : std::adjacent_find(windows.begin(), windows.end(),
                                                            std::not_equal_to<>()) == windows.end();
  check<ConfigError>(is_uniform || !is_patterned, where, ": readers of GGUF's ",
                     core::quote(std::string(family.gguf)),
                     " have a window in all layers but each whose number is a multiple of ",
                     family.windows.interval, ", but layer_types says otherwise; keep the folder");
  check<ConfigError>(is_uniform, where,
                     ": a sliding window in some layers only can't be written as GGUF; keep the "
                     "folder");
}

void add_delta(const ModelConfig& config, GgufKeyList& keys) {
  const nn::DeltaHeads& heads = config.recurrent.heads;
  keys.number(keys.own(kDeltaTapsGgufKey), config.recurrent.num_taps);
  keys.number(keys.own(kDeltaKeyHeadsGgufKey), heads.num_key_heads);
  keys.number(keys.own(kDeltaValueHeadsGgufKey), heads.num_value_heads);
  keys.number(keys.own(kDeltaKeyDimGgufKey), heads.key_dim);
  keys.number(keys.own(kDeltaFeaturesGgufKey), heads.value_features());
  keys.number(keys.own(kAttentionIntervalKey), attention_interval(config));
}

void add_recurrent(const ModelConfig& config, GgufKeyList& keys) {
  if (has_delta_nets(family_info(config))) return add_delta(config, keys);
  std::vector<int64_t> kv_heads;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    kv_heads.push_back(config.is_recurrent(layer) ? 0 : config.num_kv_heads);
  }
  keys.add({keys.own("attention.head_count_kv"), io::GgufType::kI32, std::move(kv_heads)});
  keys.number(keys.own(kTapsGgufKey), config.recurrent.num_taps);
}

void add_latent(const ModelConfig& config, GgufKeyList& keys) {
  const LatentConfig& latent = config.latent;
  keys.number(keys.own(kKvRankGgufKey), latent.kv_rank);
  if (latent.query_rank > 0) keys.number(keys.own(kQueryRankGgufKey), latent.query_rank);
  keys.number(keys.own(kOwnHeadDimGgufKey), config.head_dim);
  keys.number(keys.own(kOwnValueDimGgufKey), latent.value_dim);
}

// The sizes of what a cache keeps: latents count as one head.
ModelConfig with_kept_heads(ModelConfig config) {
  if (!config.latent.is_used()) return config;
  config.num_kv_heads = 1;
  config.head_dim = config.latent.kv_rank + config.rope_dims;
  return config;
}

// Whether layers differ in a size, so that it is no number of its own.
bool is_by_layer(const FamilyInfo& family, const SizeKey& size) {
  const bool is_of_kv = size.member == &ModelConfig::num_kv_heads;
  if (has_lfm2_names(family)) return is_of_kv;
  return has_gemma4_layers(family) && (is_of_kv || size.member == &ModelConfig::head_dim ||
                                       size.member == &ModelConfig::ffn_width);
}

void add_sizes(const ModelConfig& config, GgufKeyList& keys) {
  const ModelConfig kept = with_kept_heads(config);
  for (const SizeKey& size : kSizeKeys) {
    if (!is_by_layer(family_info(config), size)) {
      keys.number(keys.own(size.gguf), kept.*size.member);
    }
  }
  keys.number(keys.own("context_length"), config.max_positions);
  keys.real(keys.own(kNormEpsGgufKey), config.norm_eps);
}

void add_layer_sizes(const ModelConfig& config, GgufKeyList& keys) {
  const bool is_latent = config.latent.is_used();
  if (family_info(config).recurrent.has_value()) add_recurrent(config, keys);
  keys.number(keys.own(kValueDimGgufKey), is_latent ? config.latent.kv_rank : config.head_dim);
  if (is_latent) add_latent(config, keys);
  if (!config.windows.empty()) {
    keys.number(keys.own(kWindowSizeGgufKey), largest_window(config));
  } else if (family_info(config).needs_gguf_window) {
    keys.number(keys.own(kWindowSizeGgufKey), 0);
  }
}

// What readers multiply yarn's own sharpening by.
double extra_sharpening(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const double wanted =
      nn::rope_frequencies(rotated_dims(config), config.rope_base, scaling, 1).attention_factor;
  return wanted / (1 + 0.1 * std::log(scaling.factor));
}

void add_yarn(const ModelConfig& config, GgufKeyList& keys) {
  constexpr double kRounding = 1e-9;
  const RopeScaling& scaling = config.rope_scaling;
  const RopeScaling usual = {};
  keys.number(keys.own(kOriginalPositionsGgufKey), scaling.original_positions);
  if (scaling.beta_fast != usual.beta_fast) {
    keys.real(keys.own(kYarnFastGgufKey), scaling.beta_fast);
  }
  if (scaling.beta_slow != usual.beta_slow) {
    keys.real(keys.own(kYarnSlowGgufKey), scaling.beta_slow);
  }
  if (family_info(config).has_query_growth) {
    keys.real(keys.own(kYarnMultiplierGgufKey), scaling.mscale_all_dim);
    keys.real(keys.own(kQueryGrowthGgufKey), config.query_growth);
    return;
  }
  if (config.latent.is_used()) {
    keys.real(keys.own(kYarnMultiplierGgufKey), kLatentYarnMultiplier * scaling.mscale_all_dim);
    return;
  }
  const double extra = extra_sharpening(config);
  if (std::abs(extra - 1) > kRounding) keys.real(keys.own("rope.scaling.attn_factor"), extra);
}

// How readers share the turned pairs among time, height and width, which are one for a text.
void add_rope_sections(const ModelConfig& config, GgufKeyList& keys) {
  const int64_t pairs = rotated_dims(config) / 2;
  keys.add({keys.own("rope.dimension_sections"), io::GgufType::kI32,
            std::vector<int64_t>{(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0}});
}

void add_long_rope(const RopeScaling& scaling, GgufKeyList& keys) {
  keys.number(keys.own(kOriginalPositionsGgufKey), scaling.original_positions);
  keys.real(keys.own("rope.scaling.attn_factor"),
            scaling.attention_factor.value_or(nn::long_rope_sharpening(scaling)));
}

void add_rope(const ModelConfig& config, GgufKeyList& keys) {
  if (family_info(config).tiles_value_heads) add_rope_sections(config, keys);
  keys.number(keys.own(kRopeDimsGgufKey), rotated_dims(config));
  keys.real(keys.own("rope.freq_base"), config.rope_base);
  if (config.window_rope_base != 0) {
    keys.real(keys.own(kWindowRopeGgufKey), config.window_rope_base);
  }
  const RopeType type = config.rope_scaling.type;
  if (type == RopeType::kLongRope) add_long_rope(config.rope_scaling, keys);
  if (type != RopeType::kLinear && type != RopeType::kYarn) return;
  keys.text(keys.own(kRopeTypeGgufKey), type == RopeType::kLinear ? "linear" : "yarn");
  keys.real(keys.own("rope.scaling.factor"), config.rope_scaling.factor);
  if (type == RopeType::kYarn) add_yarn(config, keys);
}

void add_scales(const ModelConfig& config, GgufKeyList& keys) {
  const FamilyInfo& family = family_info(config);
  for (const CapKey& cap : kCapKeys) {
    const double size = config.*cap.member;
    if (size > 0 || family.caps.*cap.fallback > 0) keys.real(keys.own(cap.gguf), size);
  }
  if (!family.has_scales) return;
  for (const ScaleKey& scale : kScaleKeys) {
    keys.real(keys.own(scale.gguf), scale_in_file(scale, config.*scale.member));
  }
}

void add_routed(const ExpertsConfig& experts, GgufKeyList& keys) {
  for (const RoutedKey& key : kRoutedKeys) {
    if (experts.*key.member != 1) {
      keys.number(keys.own(key.gguf), experts.*key.member);
    }
  }
  const auto plain = static_cast<int64_t>(experts.plain_layers.size());
  keys.number(keys.own(kSharedCountGgufKey), experts.shared_ffn_width / experts.ffn_width);
  keys.number(keys.own(kPlainCountGgufKey), plain);
  const bool is_sigmoid = experts.scores == RouterScores::kSigmoid;
  keys.number(keys.own(kGatingFunctionGgufKey), is_sigmoid ? kSigmoidGating : kSoftmaxGating);
  keys.real(keys.own(kWeightsScaleGgufKey), experts.weights_scale);
  keys.flag(keys.own("expert_weights_norm"), experts.normalizes_weights);
}

void add_experts(const ModelConfig& config, GgufKeyList& keys) {
  const ExpertsConfig& experts = config.experts;
  if (experts.num_experts == 0) return;
  const FamilyExperts& family = family_info(config).experts;
  const auto add = [&](const ExpertKey& key) {
    keys.number(keys.own(key.gguf), experts.*key.member);
  };
  add(kExpertCount);
  add(kExpertsPerToken);
  const bool says_width = family.has_own_width || family.names == ExpertNames::kOss ||
                          family.names == ExpertNames::kGemma4;
  if (says_width) add(kExpertWidth);
  if (family.has_shared) add(kSharedExpertWidth);
  if (family.has_routed_keys) add_routed(experts, keys);
}

}  // namespace

std::string gguf_architecture(const ModelConfig& config, const std::string& where) {
  const FamilyInfo& family = family_of(config, where);
  check_rope_in_gguf(config.rope_scaling, family, where);
  if (has_gemma4_layers(family)) {
    check_gemma4_in_gguf(config, where);
  } else {
    check_uniform_windows(config, family, where);
  }
  check_experts_in_gguf(config, family, where);
  check_options_in_gguf(config, family, where);
  return std::string(family.gguf);
}

std::vector<std::string> ignored_in_gguf(const ModelConfig& config) {
  const FamilyInfo& family = family_info(config);
  const std::string where = core::join("llama.cpp does not read this for ",
                                       core::quote(std::string(family.gguf)), " and computes ");
  std::vector<std::string> notes;
  const bool reads_windows = family.windows.layers == WindowLayers::kAllButEvery;
  if (!config.windows.empty() && !reads_windows) {
    notes.push_back(core::join(kWindowSizeGgufKey, ": ", where, "otherwise behind ",
                               largest_window(config), " tokens"));
  }
  const RopeScaling &scaling = config.rope_scaling, usual = {};
  const bool has_ends =
      scaling.beta_fast != usual.beta_fast || scaling.beta_slow != usual.beta_slow;
  if (scaling.type == RopeType::kYarn && has_ends && !family.has_query_growth) {
    notes.push_back(core::join(kYarnFastGgufKey, ", ", kYarnSlowGgufKey, ": ", where, "with ",
                               usual.beta_fast, " and ", usual.beta_slow));
  }
  return notes;
}

void add_model_keys(const ModelConfig& config, GgufKeyList& keys) {
  keys.text("general.architecture", keys.architecture());
  add_sizes(config, keys);
  if (has_gemma4_layers(family_info(config))) {
    add_gemma4_keys(config, keys);
  } else {
    add_layer_sizes(config, keys);
    add_rope(config, keys);
  }
  add_experts(config, keys);
  add_scales(config, keys);
}

}  // namespace weft::models
