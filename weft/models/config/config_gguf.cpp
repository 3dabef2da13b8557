// ModelConfig from a GGUF's keys, as its specification and llama.cpp's readers have them.
#include <algorithm>
#include <utility>

#include "weft/core/error.h"
#include "weft/models/config/config_recurrent.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/families.h"
#include "weft/models/config/mixers/config_gemma4.h"
#include "weft/models/config/mixers/config_latent.h"
#include "weft/models/config/mixers/gemma4_gguf.h"
#include "weft/models/config/mixers/latent_keys.h"
#include "weft/models/config/sources.h"
#include "weft/models/config/sources_gguf.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::FormatError;

constexpr char kTokens[] = "tokenizer.ggml.tokens";
constexpr const char* kCausalGgufKey = "attention.causal";
constexpr const char* kRopeSectionsGgufKey = "rope.dimension_sections";

class Reader {
 public:
  explicit Reader(const io::TensorFile& file)
      : file_(file),
        keys_(file),
        name_(keys_.text("general.architecture")),
        family_(find_family()) {}

  ModelConfig read() {
    config_.family = family_.name;
    check<ConfigError>(keys_.flag_or(key(kCausalGgufKey), true), file_.path(), ": key '",
                       key(kCausalGgufKey), "' is false, which is not supported, expected true");
    read_sizes();
    take_family_traits(config_);
    if (has_gemma4_layers(family_)) {
      read_gemma4(file_, name_, config_);
    } else {
      read_long_rope();
      read_rope(keys_, name_, config_);
      read_window();
      read_experts();
    }
    read_rope_order();
    read_options();
    read_recurrent(keys_, name_, config_);
    config_.is_tied = file_.find("output.weight") == nullptr;
    // The first layers of some families have no attention.
    config_.has_qkv_bias = has_some(".attn_q.bias");
    config_.has_output_bias = has_some(".attn_output.bias");
    config_.has_mlp_bias = file_.find("blk.0.ffn_up.bias") != nullptr;
    return std::move(config_);
  }

 private:
  std::string key(const char* rest) const { return name_ + "." + rest; }

  bool has_some(const char* ending) const {
    return std::ranges::any_of(file_.tensors(), [&](const io::TensorMeta& tensor) {
      return tensor.name.ends_with(ending);
    });
  }

  // Of families that route by scores: whether they do so by the file's. Files of DeepSeek V2 don't
  // say which, but have no bias of the choice. GLM-4.7-Flash computes as DeepSeek V3.
  bool fits_scores(const FamilyExperts& experts) const {
    if (!experts.has_routed_keys) return true;
    const int64_t gating =
        keys_.integer_or(key(kGatingFunctionGgufKey),
                         has_some(".exp_probs_b.bias") ? kSigmoidGating : kSoftmaxGating);
    return gating ==
           (experts.routing.scores == RouterScores::kSigmoid ? kSigmoidGating : kSoftmaxGating);
  }

  // Mistral and Mixtral are of the architecture llama; experts tell the latter.
  const FamilyInfo& find_family() const {
    const auto families = gguf_families(name_, file_.path());
    const bool has_experts = keys_.integer_or(key(kExpertCount.gguf), 0) != 0;
    for (const FamilyInfo* family : families) {
      const FamilyExperts& experts = family->experts;
      if ((experts.count_key != nullptr) == has_experts && fits_scores(experts)) return *family;
    }
    return *families.front();
  }

  // Sizes that are read with the layers.
  bool differs_by_layer(const SizeKey& size) const {
    const bool is_of_heads =
        size.member == &ModelConfig::num_kv_heads || size.member == &ModelConfig::head_dim;
    if (has_gemma4_layers(family_)) return is_of_heads || size.member == &ModelConfig::ffn_width;
    return has_lfm2_names(family_) && size.member == &ModelConfig::num_kv_heads;
  }

  void read_sizes() {
    for (const SizeKey& size : kSizeKeys) {
      if (size.needed == Needed::kInAll && !differs_by_layer(size)) {
        config_.*size.member = keys_.integer(key(size.gguf));
      }
    }
    check<FormatError>(config_.num_heads >= 1, file_.path(), ": config: number of heads is ",
                       config_.num_heads, ", expected at least 1");
    config_.num_kv_heads = config_.num_heads;
    config_.head_dim = config_.width / config_.num_heads;
    if (!keys_.has(key("vocab_size"))) {
      config_.vocab_size = static_cast<int64_t>(keys_.texts(kTokens).size());
    }
    for (const SizeKey& size : kSizeKeys) {
      if (size.needed == Needed::kInAll || differs_by_layer(size)) continue;
      config_.*size.member = keys_.integer_or(key(size.gguf), config_.*size.member);
    }
    if (family_.has_further_layers) {
      config_.num_layers -= keys_.integer_or(key(kFurtherLayersGgufKey), 0);
    }
    config_.norm_eps = keys_.real(key(kNormEpsGgufKey));
    if (family_.latent.is_used()) return read_latent(keys_, name_, config_);
    if (has_gemma4_layers(family_)) return;
    const int64_t value_dim = keys_.integer_or(key(kValueDimGgufKey), config_.head_dim);
    check<ConfigError>(value_dim == config_.head_dim, file_.path(), ": config: values of ",
                       value_dim, " dims with keys of ", config_.head_dim,
                       " are not supported, expected the same");
  }

  // Its lists; the rest of its scaling are keys.
  void read_long_rope() {
    if (file_.find(kLongRopeFactors) == nullptr && file_.find(kShortRopeFactors) == nullptr) return;
    config_.rope_scaling.type = nn::RopeType::kLongRope;
    const int64_t pairs = keys_.integer_or(key(kRopeDimsGgufKey), config_.head_dim) / 2;
    check<FormatError>(pairs >= 1 && pairs <= config_.head_dim, file_.path(), ": key '",
                       key(kRopeDimsGgufKey), "' is ", 2 * pairs, ", expected 2 to ",
                       config_.head_dim);
    const auto read = [&](const char* name) {
      const std::vector<float> floats = read_floats(file_, name, pairs);
      return std::vector<double>(floats.begin(), floats.end());
    };
    config_.rope_scaling.short_factors = read(kShortRopeFactors);
    config_.rope_scaling.long_factors = read(kLongRopeFactors);
  }

  // Sections for time, height and width mean that the rows of q and k are in another order than the
  // folder's: their readers turn halves, whatever the family's models of texts do (GLM-4.1V).
  void read_rope_order() {
    if (!family_.turns_neighbours || family_.latent.is_used()) return;
    const auto sections = keys_.integers(key(kRopeSectionsGgufKey));
    const bool has_two =
        sections && sections->size() >= 2 && (*sections)[0] > 0 && (*sections)[1] > 0;
    if (has_two) config_.turns_neighbours = false;
  }

  void read_options() {
    if (family_.has_head_norms_key && file_.find("blk.0.attn_q_norm.weight") != nullptr) {
      config_.head_norms = HeadNorms::kEachHead;
    }
    if (family_.has_query_scalar) {
      config_.attention_scale =
          keys_.real_or(key("attention.scale"), gguf_attention_scale(config_));
    }
    for (const CapKey& cap : kCapKeys) {
      if (!family_.caps.has_keys) break;
      config_.*cap.member = keys_.real_or(key(cap.gguf), config_.*cap.member);
    }
    if (!family_.has_scales) return;
    for (const ScaleKey& scale : kScaleKeys) {
      if (!keys_.has(key(scale.gguf))) continue;
      config_.*scale.member = scale_from_file(scale, keys_.real(key(scale.gguf)));
    }
    // Readers of these architectures take it for a switch of rope.
    check<ConfigError>(keys_.flag_or(key("rope.scaling.finetuned"), true), file_.path(), ": key '",
                       key("rope.scaling.finetuned"),
                       "' is false: a model without rope is not supported, expected true");
  }

  void read_window() {
    const bool has_pattern = family_.windows.layers == WindowLayers::kAllButEvery;
    check<ConfigError>(has_pattern || !keys_.has(key(kWindowPatternGgufKey)), file_.path(),
                       ": key '", key(kWindowPatternGgufKey), "' is not supported");
    if (!has_pattern && !keys_.has(key(kWindowSizeGgufKey))) return;
    const int64_t window =
        keys_.integer_or(key(kWindowSizeGgufKey), family_.windows.gguf_default_size);
    check<FormatError>(window >= 0, file_.path(), ": config: sliding window is ", window,
                       ", expected at least 1, or 0 for none");
    if (window == 0) return;
    FamilyWindows windows = family_.windows;
    if (has_pattern)
      windows.interval = keys_.integer_or(key(kWindowPatternGgufKey), windows.interval);
    check<FormatError>(!has_pattern || windows.interval >= 1, file_.path(), ": key '",
                       key(kWindowPatternGgufKey), "' is ", windows.interval,
                       ", expected at least 1");
    config_.windows = usual_windows(windows, window, config_.num_layers);
  }

  void read_experts() {
    const FamilyExperts& family = family_.experts;
    ExpertsConfig& experts = config_.experts;
    experts.num_experts = keys_.integer_or(key(kExpertCount.gguf), 0);
    const bool is_plain = experts.num_experts == 0;
    check<FormatError>(!is_plain || family.count_key == nullptr, file_.path(), ": key '",
                       key(kExpertCount.gguf), "' is 0 or missing, expected at least 1");
    if (is_plain) return;
    check<ConfigError>(family.count_key != nullptr, file_.path(), ": key '", key(kExpertCount.gguf),
                       "' is ", experts.num_experts,
                       ", but experts of this architecture are not supported");
    experts.experts_per_token = keys_.integer(key(kExpertsPerToken.gguf));
    // Files of the first converters don't say it.
    const int64_t fallback =
        family.has_own_width ? config_.ffn_width / std::max<int64_t>(1, experts.experts_per_token)
                             : config_.ffn_width;
    experts.ffn_width = keys_.integer_or(key(kExpertWidth.gguf), fallback);
    experts.normalizes_weights =
        keys_.flag_or(key("expert_weights_norm"), family.is_normalized_in_gguf);
    if (family.has_routed_keys) read_routed();
    if (family.has_shared) {
      experts.shared_ffn_width = keys_.integer_or(key(kSharedExpertWidth.gguf), config_.ffn_width);
    }
  }

  void read_routed() {
    ExpertsConfig& experts = config_.experts;
    for (const RoutedKey& routed : kRoutedKeys) {
      experts.*routed.member = keys_.integer_or(key(routed.gguf), 1);
    }
    const bool is_sigmoid = experts.scores == RouterScores::kSigmoid;
    const int64_t expected = is_sigmoid ? kSigmoidGating : kSoftmaxGating;
    const int64_t gating = keys_.integer_or(key(kGatingFunctionGgufKey), expected);
    check<ConfigError>(gating == expected, file_.path(), ": key '", key(kGatingFunctionGgufKey),
                       "' is ", gating, ", which is not supported, expected ", expected,
                       is_sigmoid ? " for sigmoids" : " for a softmax");
    experts.weights_scale = keys_.real_or(key(kWeightsScaleGgufKey), 1);
    const int64_t shared = keys_.integer_or(key(kSharedCountGgufKey), 0);
    check<FormatError>(shared >= 0 && shared <= experts.num_experts, file_.path(), ": key '",
                       key(kSharedCountGgufKey), "' is ", shared, ", expected 0 to ",
                       experts.num_experts);
    experts.shared_ffn_width = shared * experts.ffn_width;
    const int64_t plain = keys_.integer_or(key(kPlainCountGgufKey), 0);
    check<FormatError>(plain >= 0 && plain <= kMaxLayers, file_.path(), ": key '",
                       key(kPlainCountGgufKey), "' is ", plain, ", expected 0 to ", kMaxLayers);
    for (int64_t layer = 0; layer < plain; ++layer) experts.plain_layers.push_back(layer);
  }

  const io::TensorFile& file_;
  GgufKeys keys_;
  std::string name_;
  const FamilyInfo& family_;
  ModelConfig config_;
};

}  // namespace

ModelConfig config_from_gguf(const io::TensorFile& file) { return Reader(file).read(); }

}  // namespace weft::models
