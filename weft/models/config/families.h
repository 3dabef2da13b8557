#pragma once

#include <cstdint>
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
  /// Those without rope.
  kWithoutRope,
};

/// The windows of a family's attention in config.json.
struct FamilyWindows {
  WindowLayers layers = WindowLayers::kNone;
  /// There are windows only where `use_sliding_window` is true.
  bool is_switched = false;
  /// Where the key is missing; 0: none.
  int64_t default_size = 0;
};

/// The experts of a family in config.json and GGUF.
struct FamilyExperts {
  /// The key of config.json that says how many; null: the family has none. The other one of
  /// kExpertCountKeys is read as well.
  const char* count_key = nullptr;
  /// Experts have a width of their own and may be in some layers only (Qwen's keys); otherwise all
  /// layers have experts, as wide as `intermediate_size`.
  bool has_own_width = false;
  /// There is one that all tokens go through.
  bool has_shared = false;
  /// The modules are "block_sparse_moe" and "w1", "w2", "w3", as Mixtral's.
  bool has_mixtral_names = false;
  /// Readers of GGUF divide a token's weights by their sum.
  bool is_normalized_in_gguf = true;
};

/// What distinguishes a family of decoders in its files: config.json of transformers 4 and 5, and
/// GGUF's keys. Defaults are those of transformers' configuration classes, which leave out of a
/// file what it does not change.
struct FamilyInfo {
  /// `model_type` in config.json, and ModelConfig::family.
  std::string_view name;
  /// `architectures` in config.json.
  std::string_view transformers_class;
  /// `general.architecture` in GGUF; families may share one.
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
  /// `partial_rotary_factor` may be less than 1.
  bool has_partial_rope = false;
  /// GGUF's readers want a window; 0 says that there is none.
  bool needs_gguf_window = false;
  /// Every so-many-th layer is without rope, unless config.json has a list; 0: none is. GGUF has no
  /// key for it.
  int64_t no_rope_interval = 0;
  /// The keys of kScaleKeys, each 1 where it is missing.
  bool has_scales = false;
  /// q, k and v are one matrix in files, and so are gate and up (fused_weights).
  bool has_fused_rows = false;
};

/// All families, in the order in which messages list them.
std::span<const FamilyInfo> families();
/// Null for a name that there is not.
const FamilyInfo* find_family_info(std::string_view name);
/// Throws InternalError for a name that there is not: configurations have been checked.
const FamilyInfo& family_info(const ModelConfig& config);
/// Gives a configuration what all models of its family have whatever their sizes: norms, biases of
/// q, k and v, layers without rope. Its family and number of layers are known. Throws as
/// family_info.
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

/// The families of a GGUF architecture in the table's order. Throws ConfigError, beginning with
/// `where`, that lists the known architectures if there are none.
std::vector<const FamilyInfo*> gguf_families(std::string_view architecture,
                                             const std::string& where);

}  // namespace weft::models
