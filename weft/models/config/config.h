#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/io/tensor_file.h"
#include "weft/nn/attention/rope_scaling.h"

namespace weft::models {

/// A model with more layers is refused.
inline constexpr int64_t kMaxLayers = 1'000;

/// The feed-forward layers of several experts, where a model has them.
struct ExpertsConfig {
  /// 0: all feed-forward layers are plain.
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  /// Of one expert.
  int64_t ffn_width = 0;
  /// Of the expert that all tokens go through; 0: none.
  int64_t shared_ffn_width = 0;
  /// The weights of a token's experts are divided by their sum.
  bool normalizes_weights = true;
  /// Every so-many-th layer has experts, except those named.
  int64_t layer_step = 1;
  std::vector<int64_t> plain_layers;

  bool operator==(const ExpertsConfig&) const = default;
};

/// Where a block has its norms.
enum class NormPlacement {
  /// Before attention and before the feed-forward layer.
  kBefore,
  /// After each, before its output is added to the residual stream (OLMo 2).
  kAfter,
};

/// The norms of queries and keys before rope.
enum class HeadNorms {
  kNone,
  /// Head by head, one weight of [head_dim] for all heads.
  kEachHead,
  /// Over the features of all heads together (OLMo 2).
  kAllHeads,
};

/// The sizes and constants of a decoder-only transformer, checked. Letters as in the docs: V
/// vocabulary, D width, N heads, K kv heads, H head dim, F ffn width.
struct ModelConfig {
  /// Family as the registry names it, e.g. "llama".
  std::string family;
  int64_t vocab_size = 0;
  int64_t width = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_width = 0;
  /// The most positions that the model is meant for, with what rope scaling adds.
  int64_t max_positions = 0;
  double norm_eps = 1e-5;
  double rope_base = 10'000;
  nn::RopeScaling rope_scaling;
  /// How many positions each layer's queries see, 0 for all; empty: all layers see all.
  std::vector<int64_t> windows;
  /// The output head is the embedding.
  bool is_tied = false;
  /// Of q, k and v; of o; of gate, up and down.
  bool has_qkv_bias = false;
  bool has_output_bias = false;
  bool has_mlp_bias = false;
  HeadNorms head_norms = HeadNorms::kNone;
  NormPlacement norm_placement = NormPlacement::kBefore;
  /// How many features of a head rope turns, the first ones; 0: all.
  int64_t rope_dims = 0;
  /// Layers whose queries and keys are not turned, ascending.
  std::vector<int64_t> layers_without_rope;
  /// Constant factors: of the embedding, of the scores before the softmax (0: head_dim^-1/2), of
  /// what attention and feed-forward layers add to the residual stream, and of the logits.
  double embedding_scale = 1;
  double attention_scale = 0;
  double residual_scale = 1;
  double logits_scale = 1;
  ExpertsConfig experts;

  /// How many positions a query of the layer sees, itself included; 0: all.
  int64_t window(int64_t layer) const;
  bool has_experts(int64_t layer) const;

  bool operator==(const ModelConfig&) const = default;
};

/// Reads the configuration from a GGUF's keys or from config.json beside a safetensors file, and
/// checks every value before it is used. Throws FormatError naming the file and the key,
/// ConfigError for a family or an option that weft does not know (lists the known ones).
ModelConfig read_config(const io::TensorFile& file);

/// Throws FormatError "<where>: config: …" unless all sizes are positive, within limits and fit
/// each other.
void check_config(const ModelConfig& config, const std::string& where);

/// What config.json says of a configuration, as transformers and read_config read it: sizes,
/// constants, "model_type" and "architectures". Throws ConfigError if the family's own file can't
/// say it: Llama's has no norms of heads, only Mixtral's and Qwen's have experts.
nlohmann::json config_json(const ModelConfig& config);

}  // namespace weft::models
