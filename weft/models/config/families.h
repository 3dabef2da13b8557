#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/models/config/config.h"

namespace weft::models {

/// Which linear layers have biases, as config.json says it.
enum class BiasKeys {
  kNone,
  /// `attention_bias` for q, k, v and o, `mlp_bias` for gate, up and down.
  kAttentionAndMlp,
  /// The same, `attention_bias` being true where it is missing.
  kAttention,
  /// `attention_bias` for q, k and v; true, or false, where it is missing.
  kQkvIfNotFalse,
  kQkvIfTrue,
  /// q, k and v have them; there is no key.
  kQkvAlways,
  /// `qkv_bias`, true where the key is missing.
  kQkv,
};

/// Which layers have the window of `sliding_window` if config.json has no `layer_types`.
enum class WindowLayers {
  /// The family has no windows, whatever the file says.
  kNone,
  kAll,
  /// Those from `max_window_layers` on.
  kLast,
  /// Every other one of those before `max_window_layers`, the first included.
  kEveryOtherFirst,
  /// Those without rope.
  kWithoutRope,
  /// All but every so-many-th.
  kAllButEvery,
};

/// The windows of a family's attention in config.json.
struct FamilyWindows {
  WindowLayers layers = WindowLayers::kNone;
  /// There are windows only where `use_sliding_window` is true.
  bool is_switched = false;
  /// Where the key is missing; 0: none.
  int64_t default_size = 0;
  /// Of kAllButEvery: the step, and the size where GGUF has no key; 0: none.
  int64_t interval = 0;
  int64_t gguf_default_size = 0;
};

/// The caps of a family's scores and logits, by keys of config.json and GGUF.
struct FamilyCaps {
  bool has_keys = false;
  /// Where the keys are missing; 0: none.
  double scores = 0;
  double logits = 0;
};

/// How a family names its router and its experts' matrices.
enum class ExpertNames {
  /// "mlp.gate", "mlp.experts.0.gate_proj".
  kUsual,
  /// "block_sparse_moe.gate" and "w1", "w2", "w3" (Mixtral).
  kMixtral,
  /// "mlp.router", and a layer's experts in one tensor, gates and ups in turn (gpt-oss).
  kOss,
  /// "router.proj", and a layer's experts in one tensor, gates before ups (Gemma 4).
  kGemma4,
};

/// Which weights are one matrix in a family's files.
enum class FusedRows {
  kNone,
  kGateUp,
  /// Those, and q, k and v.
  kAll,
  /// What projects to the channels and the gates of a gated delta net, and to its rates and decays,
  /// by key heads in turn (Qwen3-Next).
  kDeltaGroups,
};

/// How a family with FamilyExperts::has_routed_keys deals tokens out, and what goes for keys that
/// config.json does not have.
struct FamilyRouting {
  /// With sigmoids there is a bias of the choice.
  RouterScores scores = RouterScores::kSigmoid;
  /// ExpertsConfig::best_of_group.
  int64_t best_of_group = 2;
  int64_t num_groups = 1;
  int64_t groups_per_token = 1;
  double weights_scale = 1;
  int64_t num_shared = 1;
  int64_t num_plain = 1;
  /// `norm_topk_prob` is false, and no other.
  bool is_never_normalized = false;
  /// `topk_method` says whether there are groups.
  bool has_method_key = false;
  /// `mlp_layer_types` lists the layers without experts.
  bool has_layer_list = false;
};

/// The experts of a family in config.json and GGUF.
struct FamilyExperts {
  /// The key of config.json that says how many; null: the family has none, or has keys of its own
  /// (config_gemma4.h). The other one of kExpertCountKeys is read as well.
  const char* count_key = nullptr;
  /// Experts have a width of their own and may be in some layers only (Qwen's keys); otherwise all
  /// layers have experts, as wide as `intermediate_size`.
  bool has_own_width = false;
  /// There is one that all tokens go through.
  bool has_shared = false;
  /// Of has_own_width: `norm_topk_prob` where it is missing.
  bool is_normalized = false;
  ExpertNames names = ExpertNames::kUsual;
  /// Routers and experts have biases.
  bool has_biases = false;
  /// GLM-4.5's and DeepSeek's keys: routing by scores and groups, the first layers plain, so many
  /// experts of one width that all tokens go through.
  bool has_routed_keys = false;
  FamilyRouting routing = {};
  /// Readers of GGUF divide a token's weights by their sum.
  bool is_normalized_in_gguf = true;
};

/// The projections of latent attention where config.json says nothing (LatentConfig).
struct FamilyLatent {
  /// 0: the family has none.
  int64_t kv_rank = 0;
  int64_t query_rank = 0;
  /// Of a head: features that rope leaves, those that it turns, and a value's.
  int64_t plain_dim = 0;
  int64_t rope_dim = 0;
  int64_t value_dim = 0;
  /// `rope_interleave` says whether rope turns neighbours; otherwise it does.
  bool has_interleave_key = false;

  bool is_used() const { return kv_rank > 0; }
};

/// What distinguishes a family of decoders in its files: config.json of transformers 4 and 5, and
/// GGUF's keys. Defaults are those of transformers' configuration classes, which leave out of a
/// file what it does not change.
struct FamilyInfo {
  /// `model_type` in config.json, and ModelConfig::family.
  std::string_view name;
  /// `architectures` in config.json.
  std::string_view transformers_class;
  /// `general.architecture` in GGUF; families may share one. Empty: weft knows no such files.
  std::string_view gguf;
  /// GGUF keeps the rows of q and k of a head as pairs (0, H/2), (1, H/2 + 1), …, for a rope that
  /// turns neighbours; otherwise in the model's order.
  bool has_paired_rows = false;
  int64_t max_positions = 2048;
  double rope_base = 10'000;
  /// 0: width / heads.
  int64_t head_dim = 0;
  bool is_tied = false;
  BiasKeys biases = BiasKeys::kNone;
  HeadNorms head_norms = HeadNorms::kNone;
  NormPlacement norm_placement = NormPlacement::kBefore;
  FamilyWindows windows = {};
  FamilyExperts experts = {};
  FamilyLatent latent = {};
  /// `partial_rotary_factor` may be less than 1.
  bool has_partial_rope = false;
  /// What norms add to their weights in folders; GGUF's weights have it in them.
  double norm_offset = 0;
  nn::Activation activation = nn::Activation::kSilu;
  /// Of Activation::kClamped: `swiglu_limit`, which older files don't say.
  double gate_limit = 0;
  bool has_sinks = false;
  /// Yarn's ramp ends between dims where the file does not say; GGUF has no key for it.
  bool truncates_yarn = true;
  /// What transformers takes for `rope_parameters`, as JSON, where config.json has neither these
  /// nor `rope_scaling`; null: rope is plain then.
  const char* usual_rope = nullptr;
  /// The embedding is multiplied by the root of its width, which no key says.
  bool scales_embedding = false;
  /// Scores are divided by the root of `query_pre_attn_scalar`. GGUF has no key for it: its readers
  /// divide by that of the head dim, and by that of width / heads in the size of so many layers.
  bool has_query_scalar = false;
  int64_t layers_scaled_by_width = 0;
  FamilyCaps caps = {};
  /// ModelConfig::window_rope_base where the key is missing; 0: there is none.
  double window_rope_base = 0;
  /// `max_position_embeddings` counts what linear scaling of rope adds.
  bool counts_scaled_positions = false;
  /// GGUF's readers want a window; 0 says that there is none.
  bool needs_gguf_window = false;
  /// Every so-many-th layer is without rope, unless config.json has a list; 0: none is. GGUF has no
  /// key for it.
  int64_t no_rope_interval = 0;
  /// The keys of kScaleKeys, each 1 where it is missing.
  bool has_scales = false;
  FusedRows fused_rows = FusedRows::kNone;
  /// Rope turns neighbouring features of a head, in files of both kinds.
  bool turns_neighbours = false;
  /// The part of a head that rope turns where `partial_rotary_factor` is missing.
  double rotated_part = 1;
  /// `use_qk_norm` says whether queries and keys have norms; in GGUF they are there or not.
  bool has_head_norms_key = false;
  /// Queries grow behind the original positions (`llama_4_scaling_beta`).
  bool has_query_growth = false;
  /// Norms after layers are "post_self_attn_layernorm" and "post_mlp_layernorm".
  bool has_glm_norm_names = false;
  /// GGUF calls the norm before the feed-forward layer "post_attention_norm".
  bool has_late_ffn_norm_name = false;
  /// Files may hold layers behind the model's own, which it does without.
  bool has_further_layers = false;
  /// Another `model_type` that stands for the same class.
  std::string_view other_name = {};
  /// `model_type` of a model of texts and pictures whose `text_config` is of this family.
  std::string_view around = {};
  /// What `layer_types` may give a layer instead of attention (config_recurrent.h).
  std::optional<RecurrentKind> recurrent = std::nullopt;
  /// GGUF has value heads of gated delta nets in another order (weights/tiled_heads.h), and wants
  /// `rope.dimension_sections`, of which texts need nothing.
  bool tiles_value_heads = false;
  /// ModelConfig::gates_attention, which no key says.
  bool gates_attention = false;
  /// FullLayersConfig::head_dim where `global_head_dim` is missing (config_gemma4.h); 0: layers
  /// with and without a window are alike.
  int64_t full_head_dim = 0;
};

/// Whether no program reads a family's experts one by one.
inline bool has_stacked_experts(const FamilyInfo& family) {
  return family.experts.names == ExpertNames::kOss || family.experts.names == ExpertNames::kGemma4;
}

/// All families, in the order in which messages list them.
std::span<const FamilyInfo> families();
/// Null for a name that there is not.
const FamilyInfo* find_family_info(std::string_view name);
/// Throws InternalError for a name that there is not: configurations have been checked.
const FamilyInfo& family_info(const ModelConfig& config);
/// Gives a configuration what all models of its family have whatever their sizes: norms, biases of
/// q, k and v, layers without rope, factors and caps. Its family, width and number of layers are
/// known. Throws as family_info.
void take_family_traits(ModelConfig& config);
/// Names of all families.
std::vector<std::string_view> family_names();

/// Where files must have a key.
enum class Needed { kInAll, kInFolders, kNowhere };

/// A whole number of ModelConfig by its names in files.
struct SizeKey {
  int64_t ModelConfig::*member;
  const char* folder;
  /// Behind "<architecture>.".
  const char* gguf;
  Needed needed = Needed::kInAll;
};
inline constexpr SizeKey kSizeKeys[] = {
    {&ModelConfig::vocab_size, "vocab_size", "vocab_size", Needed::kInFolders},
    {&ModelConfig::width, "hidden_size", "embedding_length"},
    {&ModelConfig::num_layers, "num_hidden_layers", "block_count"},
    {&ModelConfig::num_heads, "num_attention_heads", "attention.head_count"},
    {&ModelConfig::num_kv_heads, "num_key_value_heads", "attention.head_count_kv",
     Needed::kNowhere},
    {&ModelConfig::head_dim, "head_dim", "attention.key_length", Needed::kNowhere},
    {&ModelConfig::ffn_width, "intermediate_size", "feed_forward_length"},
};
inline constexpr const char* kNormEpsFolderKey = "rms_norm_eps";
inline constexpr const char* kNormEpsGgufKey = "attention.layer_norm_rms_epsilon";

/// A constant factor of ModelConfig by its names in files.
struct ScaleKey {
  double ModelConfig::*member;
  const char* folder;
  const char* gguf;
  /// Files have what is divided by.
  bool is_divisor = false;
};
inline constexpr ScaleKey kScaleKeys[] = {
    {&ModelConfig::embedding_scale, "embedding_multiplier", "embedding_scale"},
    {&ModelConfig::attention_scale, "attention_multiplier", "attention.scale"},
    {&ModelConfig::residual_scale, "residual_multiplier", "residual_scale"},
    {&ModelConfig::logits_scale, "logits_scaling", "logit_scale", true},
};
/// The number that files have, or the factor from it: the two are each other's inverse.
double scale_in_file(const ScaleKey& key, double factor);
double scale_from_file(const ScaleKey& key, double number);

/// Keys of config.json that some families have.
inline constexpr const char* kQueryScalarKey = "query_pre_attn_scalar";
inline constexpr const char* kWindowRopeFolderKey = "rope_local_base_freq";
/// And GGUF's: of layers with a window, which it lists or of which it names every so-many-th.
inline constexpr const char* kWindowSizeGgufKey = "attention.sliding_window";
inline constexpr const char* kWindowPatternGgufKey = "attention.sliding_window_pattern";
inline constexpr const char* kWindowRopeGgufKey = "rope.freq_base_swa";

/// A cap of ModelConfig by its names in files.
struct CapKey {
  double ModelConfig::*member;
  double FamilyCaps::*fallback;
  const char* folder;
  const char* gguf;
};
inline constexpr CapKey kCapKeys[] = {
    {&ModelConfig::score_cap, &FamilyCaps::scores, "attn_logit_softcapping",
     "attn_logit_softcapping"},
    {&ModelConfig::logits_cap, &FamilyCaps::logits, "final_logit_softcapping",
     "final_logit_softcapping"},
};

/// The windows that a family has where files list no layers: `size` in the layers that `windows`
/// names, 0 in others. kAll and kAllButEvery.
std::vector<int64_t> usual_windows(const FamilyWindows& windows, int64_t size, int64_t num_layers);
/// ModelConfig::attention_scale that GGUF's readers take for sizes of a family with a query scalar.
double gguf_attention_scale(const ModelConfig& config);

/// Whether a file's number of positions is that before rope's scaling multiplies it.
bool states_unscaled_positions(const ModelConfig& config);

/// How many features of a head rope turns.
int64_t rotated_dims(const ModelConfig& config);

/// Every so-many-th of a model's layers: interval - 1, 2 * interval - 1, … At most kMaxLayers.
std::vector<int64_t> every_layer(int64_t num_layers, int64_t interval);

/// The number of experts in config.json: transformers 4 and 5 differ in which one they write.
inline constexpr const char* kExpertCountKeys[] = {"num_experts", "num_local_experts"};

/// A whole number of ExpertsConfig by its names in files.
struct ExpertKey {
  int64_t ExpertsConfig::*member;
  /// Null for the count, whose key depends on the family.
  const char* folder;
  const char* gguf;
};
inline constexpr ExpertKey kExpertCount = {&ExpertsConfig::num_experts, nullptr, "expert_count"};
inline constexpr ExpertKey kExpertsPerToken = {&ExpertsConfig::experts_per_token,
                                               "num_experts_per_tok", "expert_used_count"};
inline constexpr ExpertKey kExpertWidth = {&ExpertsConfig::ffn_width, "moe_intermediate_size",
                                           "expert_feed_forward_length"};
inline constexpr ExpertKey kSharedExpertWidth = {&ExpertsConfig::shared_ffn_width,
                                                 "shared_expert_intermediate_size",
                                                 "expert_shared_feed_forward_length"};

/// Whole numbers of FamilyExperts::has_routed_keys by their names in files.
struct RoutedKey {
  int64_t ExpertsConfig::*member;
  int64_t FamilyRouting::*fallback;
  const char* folder;
  /// Where it is missing: 1.
  const char* gguf;
};
inline constexpr RoutedKey kRoutedKeys[] = {
    {&ExpertsConfig::num_groups, &FamilyRouting::num_groups, "n_group", "expert_group_count"},
    {&ExpertsConfig::groups_per_token, &FamilyRouting::groups_per_token, "topk_group",
     "expert_group_used_count"},
};
inline constexpr const char* kWeightsScaleFolderKey = "routed_scaling_factor";
inline constexpr const char* kWeightsScaleGgufKey = "expert_weights_scale";
/// How many experts of one width are one shared one, and how many layers come before those with
/// experts.
inline constexpr const char* kSharedCountFolderKey = "n_shared_experts";
inline constexpr const char* kSharedCountGgufKey = "expert_shared_count";
inline constexpr const char* kPlainCountFolderKey = "first_k_dense_replace";
inline constexpr const char* kPlainCountGgufKey = "leading_dense_block_count";
/// GGUF's numbers of a softmax and of sigmoids, of "expert_gating_func".
inline constexpr const char* kGatingFunctionGgufKey = "expert_gating_func";
inline constexpr int64_t kSoftmaxGating = 1;
inline constexpr int64_t kSigmoidGating = 2;
/// DeepSeek V2's two ways to choose experts, and the key that says which.
inline constexpr const char* kMethodFolderKey = "topk_method";
inline constexpr const char* kGreedyMethod = "greedy";
inline constexpr const char* kGroupsMethod = "group_limited_greedy";
/// The layers with and without experts, by names.
inline constexpr const char* kLayerListFolderKey = "mlp_layer_types";
inline constexpr const char* kSparseLayer = "sparse";
inline constexpr const char* kDenseLayer = "dense";

inline constexpr const char* kFurtherLayersGgufKey = "nextn_predict_layers";
/// Growth of queries.
inline constexpr const char* kQueryGrowthFolderKey = "llama_4_scaling_beta";
inline constexpr const char* kQueryGrowthGgufKey = "attention.temperature_scale";

/// The families of a GGUF architecture in the table's order. Throws ConfigError, beginning with
/// `where`, that lists the known architectures if there are none.
std::vector<const FamilyInfo*> gguf_families(std::string_view architecture,
                                             const std::string& where);

}  // namespace weft::models
