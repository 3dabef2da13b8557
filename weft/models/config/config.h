#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "weft/io/tensor_file.h"
#include "weft/nn/attention/rope_scaling.h"
#include "weft/nn/layers/activation.h"
#include "weft/nn/recurrent/delta_heads.h"

namespace weft::models {

/// A model with more layers is refused.
inline constexpr int64_t kMaxLayers = 1'000;

/// What a router makes of its logits.
enum class RouterScores {
  kSoftmax,
  /// Each expert's by itself (GLM-4.5, DeepSeek V3).
  kSigmoid,
};

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
  RouterScores scores = RouterScores::kSoftmax;
  /// Of the router's logits; of each expert's gate, up and down.
  bool has_router_bias = false;
  bool has_bias = false;
  /// Numbers of each expert that are added to scores for the choice alone.
  bool has_choice_bias = false;
  /// Experts are neighbours in as many groups, of which a token takes so many: those whose so many
  /// best experts have the largest sum.
  int64_t num_groups = 1;
  int64_t groups_per_token = 1;
  int64_t best_of_group = 2;
  /// What a token's weights are multiplied by in the end.
  double weights_scale = 1;
  /// The shared expert counts in proportion to the sigmoid of a gate of its own; otherwise whole.
  bool gates_shared = true;
  /// Layers with experts have a plain feed-forward layer as well. Both read the residual stream and
  /// have norms of their own, as the router has; what they give is added up (Gemma 4).
  bool is_beside_ffn = false;

  bool operator==(const ExpertsConfig&) const = default;
};

/// What recurrent layers have in the place of attention.
enum class RecurrentKind {
  /// A gated convolution along a few tokens (LFM2).
  kShortConvolution,
  /// The gated delta rule behind such a convolution (Qwen3-Next).
  kGatedDelta,
};

/// The layers that keep a state of fixed size instead of keys and values, where a model has some.
struct RecurrentConfig {
  /// Their numbers, ascending; empty: all layers have attention.
  std::vector<int64_t> layers;
  RecurrentKind kind = RecurrentKind::kShortConvolution;
  /// How many tokens a convolution sees, the newest included.
  int64_t num_taps = 0;
  /// Of kGatedDelta.
  nn::DeltaHeads heads = {};

  bool operator==(const RecurrentConfig&) const = default;
};

/// The projections of a model whose keys and values are made of a latent, which is what a cache
/// keeps, with key features that rope turns and all heads share. A head of queries and keys has
/// ModelConfig::head_dim features, of which rope turns the last ModelConfig::rope_dims. Source:
/// DeepSeek V2, arXiv:2405.04434.
struct LatentConfig {
  /// Features of the latent of keys and values; 0: attention has none.
  int64_t kv_rank = 0;
  /// Features of the queries' own latent; 0: they are projected at once.
  int64_t query_rank = 0;
  /// Of a head's values.
  int64_t value_dim = 0;

  bool is_used() const { return kv_rank > 0; }
  bool operator==(const LatentConfig&) const = default;
};

/// What layers without a window have otherwise than those with one, in families of which the two
/// are not alike (Gemma 4).
struct FullLayersConfig {
  /// Of their heads; 0: layers are alike.
  int64_t head_dim = 0;
  int64_t num_kv_heads = 0;
  /// They have no projection of values: these are the keys before norm and rope.
  bool keys_are_values = false;

  bool is_used() const { return head_dim > 0; }
  bool operator==(const FullLayersConfig&) const = default;
};

/// A second embedding, of which each layer gets features of its own, beside as many that are
/// projected from the first one (Gemma 4's E2B and E4B).
struct LayerInputsConfig {
  /// Of a layer; 0: there is none.
  int64_t width = 0;
  int64_t vocab_size = 0;

  bool is_used() const { return width > 0; }
  bool operator==(const LayerInputsConfig&) const = default;
};

/// The last layers of a model whose keys and values are those of an earlier layer: of the last one
/// before them that has a window, or has none, as they do (Gemma 4's E2B and E4B).
struct ReusingLayersConfig {
  /// How many.
  int64_t count = 0;
  /// Of their feed-forward layers; 0: as in others.
  int64_t ffn_width = 0;

  bool operator==(const ReusingLayersConfig&) const = default;
};

/// What the norms of latents add to the mean square, whatever norm_eps says: DeepSeek's classes
/// don't read it from a file.
inline constexpr double kLatentNormEps = 1e-6;

/// Where a block has its norms.
enum class NormPlacement {
  /// Before attention and before the feed-forward layer.
  kBefore,
  /// After each, before its output is added to the residual stream (OLMo 2).
  kAfter,
  /// Both (Gemma 2, GLM-4).
  kBoth,
};

/// The norms of queries and keys before rope.
enum class HeadNorms {
  kNone,
  /// Head by head, one weight of [head_dim] for all heads.
  kEachHead,
  /// Over the features of all heads together (OLMo 2).
  kAllHeads,
};

/// Whether attention and feed-forward layers have a norm before them.
constexpr bool has_norms_before(NormPlacement placement) {
  return placement != NormPlacement::kAfter;
}
/// Whether they have one after them.
constexpr bool has_norms_after(NormPlacement placement) {
  return placement != NormPlacement::kBefore;
}

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
  /// What norms add to their weights: files of some families have them less 1.
  double norm_offset = 0;
  /// Of the feed-forward layers, those of experts, too.
  nn::Gating gating;
  double rope_base = 10'000;
  nn::RopeScaling rope_scaling;
  /// The base of layers with a window, whose rope is not scaled; 0: they turn as the others.
  double window_rope_base = 0;
  /// Rope turns features 2 i and 2 i + 1 together; otherwise i and half of the turned ones further.
  bool turns_neighbours = false;
  /// Queries behind the original positions of rope's scaling grow with the logarithm of how often
  /// these fit in: times 1 + query_growth * ln(1 + floor(position / original)).
  double query_growth = 0;
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
  /// How many features of a head rope turns, the first ones, with a latent the last; 0: all.
  int64_t rope_dims = 0;
  /// Layers whose queries and keys are not turned, ascending.
  std::vector<int64_t> layers_without_rope;
  /// Constant factors: of the embedding, of the scores before the softmax (0: head_dim^-1/2), of
  /// what attention and feed-forward layers add to the residual stream, and of the logits.
  double embedding_scale = 1;
  double attention_scale = 0;
  double residual_scale = 1;
  double logits_scale = 1;
  /// Scores before the softmax, and logits, become cap * tanh(x / cap); 0: they stay.
  double score_cap = 0;
  double logits_cap = 0;
  /// Each head has a number beside its scores in the softmax, whose share is given to no position.
  bool has_sinks = false;
  /// Behind the queries of each head its projection has as many gates, by whose sigmoids the head's
  /// output is multiplied.
  bool gates_attention = false;
  LatentConfig latent;
  ExpertsConfig experts;
  RecurrentConfig recurrent;
  FullLayersConfig full_layers;
  /// Values have a norm of each head, without weights.
  bool norms_values = false;
  /// What a layer returns is multiplied by a number that it has.
  bool scales_layers = false;
  LayerInputsConfig layer_inputs;
  ReusingLayersConfig reusing;

  /// How many positions a query of the layer sees, itself included; 0: all.
  int64_t window(int64_t layer) const;
  bool has_experts(int64_t layer) const;
  bool has_plain_ffn(int64_t layer) const { return experts.is_beside_ffn || !has_experts(layer); }
  bool is_recurrent(int64_t layer) const;
  /// Whether the layer's heads are those of full_layers.
  bool has_full_heads(int64_t layer) const { return full_layers.is_used() && window(layer) == 0; }
  int64_t head_dim_of(int64_t layer) const;
  int64_t num_kv_heads_of(int64_t layer) const;
  /// The first layer that reuses another one's keys and values; num_layers if none does.
  int64_t first_reusing() const { return num_layers - reusing.count; }
  bool reuses_keys(int64_t layer) const { return layer >= first_reusing(); }
  /// The layer whose keys and values a layer reads: itself, or an earlier one.
  int64_t kv_layer(int64_t layer) const;

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
