#include "weft/models/convert/gguf_model_keys.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string_view>

#include "weft/core/error.h"
#include "weft/nn/attention/rope_scaling.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using nn::RopeScaling;
using nn::RopeType;

struct GgufArchitecture {
  std::string_view family;
  std::string_view name;
  // What its readers do with the weights of a token's experts.
  bool normalizes_weights;
};

constexpr std::array<GgufArchitecture, 7> kGgufArchitectures = {{
    {"llama", "llama", true},
    {"mistral", "llama", true},
    {"mixtral", "llama", true},
    {"qwen2", "qwen2", true},
    {"qwen3", "qwen3", true},
    {"qwen2_moe", "qwen2moe", false},
    {"qwen3_moe", "qwen3moe", true},
}};

const GgufArchitecture& architecture_of(const std::string& family, const std::string& where) {
  for (const GgufArchitecture& row : kGgufArchitectures) {
    if (row.family == family) return row;
  }
  core::fail<ConfigError>(where, ": the family ", core::quote(family),
                          " can't be written as GGUF; keep the folder");
}

void check_rope_in_gguf(const RopeScaling& scaling, const std::string& where) {
  check<ConfigError>(
      scaling.type != RopeType::kDynamic, where,
      ": GGUF has no dynamic rope scaling; keep the folder, or take rope_scaling out "
      "of config.json for texts of at most ",
      scaling.original_positions, " tokens");
  check<ConfigError>(scaling.type != RopeType::kYarn || scaling.truncate, where,
                     ": GGUF's yarn rope scaling begins and ends at whole dims, but truncate is "
                     "false; keep the folder");
}

void check_experts_in_gguf(const ModelConfig& config, const GgufArchitecture& architecture,
                           const std::string& where) {
  const ExpertsConfig& experts = config.experts;
  if (experts.num_experts == 0) return;
  check<ConfigError>(experts.layer_step == 1 && experts.plain_layers.empty(), where,
                     ": layers without experts beside those that have some can't be written as "
                     "GGUF; keep the folder");
  check<ConfigError>(experts.normalizes_weights == architecture.normalizes_weights, where,
                     ": norm_topk_prob is ", experts.normalizes_weights ? "true" : "false",
                     ", but readers of GGUF's ", core::quote(std::string(architecture.name)),
                     " take the other; keep the folder");
}

void check_uniform_windows(const ModelConfig& config, const std::string& where) {
  const auto& windows = config.windows;
  const bool is_uniform =
      std::adjacent_find(windows.begin(), windows.end(), std::not_equal_to<>()) == windows.end();
  check<ConfigError>(is_uniform, where,
                     ": a sliding window in some layers only can't be written as GGUF; keep the "
                     "folder");
}

void add_sizes(const ModelConfig& config, GgufKeyList& keys) {
  keys.number(keys.own("context_length"), config.max_positions);
  keys.number(keys.own("embedding_length"), config.width);
  keys.number(keys.own("block_count"), config.num_layers);
  keys.number(keys.own("feed_forward_length"), config.ffn_width);
  keys.number(keys.own("attention.head_count"), config.num_heads);
  keys.number(keys.own("attention.head_count_kv"), config.num_kv_heads);
  keys.number(keys.own("attention.key_length"), config.head_dim);
  keys.number(keys.own("attention.value_length"), config.head_dim);
  keys.number(keys.own("vocab_size"), config.vocab_size);
  keys.real(keys.own("attention.layer_norm_rms_epsilon"), config.norm_eps);
  if (!config.windows.empty()) {
    keys.number(keys.own("attention.sliding_window"), config.windows.front());
  }
}

// What readers multiply yarn's own sharpening by.
double extra_sharpening(const ModelConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  const double wanted =
      nn::rope_frequencies(config.head_dim, config.rope_base, scaling, 1).attention_factor;
  return wanted / (1 + 0.1 * std::log(scaling.factor));
}

void add_yarn(const ModelConfig& config, GgufKeyList& keys) {
  constexpr double kRounding = 1e-9;
  const RopeScaling& scaling = config.rope_scaling;
  const RopeScaling usual = {};
  keys.number(keys.own("rope.scaling.original_context_length"), scaling.original_positions);
  if (scaling.beta_fast != usual.beta_fast) {
    keys.real(keys.own("rope.scaling.yarn_beta_fast"), scaling.beta_fast);
  }
  if (scaling.beta_slow != usual.beta_slow) {
    keys.real(keys.own("rope.scaling.yarn_beta_slow"), scaling.beta_slow);
  }
  const double extra = extra_sharpening(config);
  if (std::abs(extra - 1) > kRounding) keys.real(keys.own("rope.scaling.attn_factor"), extra);
}

void add_rope(const ModelConfig& config, GgufKeyList& keys) {
  keys.number(keys.own("rope.dimension_count"), config.head_dim);
  keys.real(keys.own("rope.freq_base"), config.rope_base);
  const RopeType type = config.rope_scaling.type;
  if (type != RopeType::kLinear && type != RopeType::kYarn) return;
  keys.text(keys.own("rope.scaling.type"), type == RopeType::kLinear ? "linear" : "yarn");
  keys.real(keys.own("rope.scaling.factor"), config.rope_scaling.factor);
  if (type == RopeType::kYarn) add_yarn(config, keys);
}

void add_experts(const ModelConfig& config, GgufKeyList& keys) {
  const ExpertsConfig& experts = config.experts;
  if (experts.num_experts == 0) return;
  keys.number(keys.own("expert_count"), experts.num_experts);
  keys.number(keys.own("expert_used_count"), experts.experts_per_token);
  if (keys.architecture() == "llama") return;
  keys.number(keys.own("expert_feed_forward_length"), experts.ffn_width);
  if (experts.shared_ffn_width > 0) {
    keys.number(keys.own("expert_shared_feed_forward_length"), experts.shared_ffn_width);
  }
}

}  // namespace

std::string gguf_architecture(const ModelConfig& config, const std::string& where) {
  const GgufArchitecture& architecture = architecture_of(config.family, where);
  check_rope_in_gguf(config.rope_scaling, where);
  check_uniform_windows(config, where);
  check_experts_in_gguf(config, architecture, where);
  return std::string(architecture.name);
}

void add_model_keys(const ModelConfig& config, GgufKeyList& keys) {
  keys.text("general.architecture", keys.architecture());
  add_sizes(config, keys);
  add_rope(config, keys);
  add_experts(config, keys);
}

}  // namespace weft::models
