#include "weft/models/decoder/decoder_rules.h"

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/decoder/tied_head.h"

namespace weft::models {
namespace {

DimSplit head_split(const ModelConfig& config, DimSplit::Kind kind) {
  DimSplit split;
  split.kind = kind;
  split.num_heads = config.num_heads;
  split.num_kv_heads = config.num_kv_heads;
  const bool is_query = kind == DimSplit::Kind::kQueryHeads;
  split.size = config.head_dim * (is_query ? config.num_heads : config.num_kv_heads);
  return split;
}

// Where whole units don't suffice they are cut at runs of 8, which is lossless too.
DimSplit even_split(int64_t size, int64_t unit) {
  DimSplit split;
  split.size = size;
  split.unit = unit;
  split.fine_unit = unit > 8 && unit % 8 == 0 ? 8 : 0;
  return split;
}

// What a weight's rule says beside its shape.
struct HowCut {
  Cut cut = Cut::kWhole;
  std::string split = {};
  bool has_bias = false;
  // Heads whose rows GGUF may have in another order; 0: none.
  int64_t rope_heads = 0;
};

class RulesBuilder {
 public:
  RulesBuilder(const ModelConfig& config, const io::TensorFile& file)
      : config_(config), file_(file) {}

  WeightRules build() {
    add_splits();
    const HowCut by_vocab{Cut::kRows, "vocab"};
    matrix({Part::kEmbedding}, config_.vocab_size, config_.width, by_vocab);
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) add_layer(layer);
    norm({Part::kFinalNorm}, config_.width);
    if (!config_.is_tied) matrix({Part::kHead}, config_.vocab_size, config_.width, by_vocab);
    rules_.unread = copied_head(config_, file_);
    if (file_.is_gguf() && file_.find(kRopeDivisors) != nullptr) {
      add(kRopeDivisors, kRopeDivisors, 0, config_.head_dim / 2);
    }
    return std::move(rules_);
  }

 private:
  void add_splits() {
    const ExpertsConfig& experts = config_.experts;
    rules_.splits["heads"] = head_split(config_, DimSplit::Kind::kQueryHeads);
    rules_.splits["kv"] = head_split(config_, DimSplit::Kind::kKvHeads);
    rules_.splits["vocab"] = even_split(config_.vocab_size, 1);
    const int64_t plain_unit = down_unit(Part::kDown, config_.ffn_width, false);
    if (plain_unit > 0) rules_.splits["ffn"] = even_split(config_.ffn_width, plain_unit);
    const int64_t expert_unit = down_unit(Part::kExpertDown, experts.ffn_width, true);
    if (expert_unit > 0) {
      rules_.splits["expert_ffn"] = even_split(experts.ffn_width, expert_unit);
    }
    if (experts.shared_ffn_width > 0) {
      const int64_t unit = down_unit(Part::kSharedDown, experts.shared_ffn_width, true);
      rules_.splits["shared_ffn"] = even_split(experts.shared_ffn_width, unit);
    }
  }

  // The run that no quant group of the layers' down projections is cut by; 0 without such layers.
  int64_t down_unit(Part part, int64_t ffn, bool of_experts) const {
    int64_t unit = 0;
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      if (config_.has_experts(layer) != of_experts) continue;
      const io::MatrixRef down = place_in_file({part, layer}, config_.width, ffn).matrix();
      const bool is_stored = file_.find(down.base + ".weight") != nullptr ||
                             file_.find(down.base + ".qweight") != nullptr;
      const int64_t own = is_stored ? io::matrix_format(file_, down).in_unit : 1;
      unit = unit == 0 ? own : std::lcm(unit, own);
    }
    return unit;
  }

  void add_layer(int64_t layer) {
    const int64_t D = config_.width, H = config_.head_dim;
    const int64_t N = config_.num_heads, K = config_.num_kv_heads;
    const bool qkv_bias = config_.has_qkv_bias;
    norm({Part::kInputNorm, layer}, D);
    matrix({Part::kQuery, layer}, N * H, D, {Cut::kRows, "heads", qkv_bias, N});
    matrix({Part::kKey, layer}, K * H, D, {Cut::kRows, "kv", qkv_bias, K});
    matrix({Part::kValue, layer}, K * H, D, {Cut::kRows, "kv", qkv_bias});
    if (config_.head_norms == HeadNorms::kEachHead) {
      norm({Part::kQueryNorm, layer}, H);
      norm({Part::kKeyNorm, layer}, H);
    }
    if (config_.head_norms == HeadNorms::kAllHeads) {
      norm_of_heads({Part::kQueryNorm, layer}, N * H, "heads");
      norm_of_heads({Part::kKeyNorm, layer}, K * H, "kv");
    }
    matrix({Part::kOutput, layer}, D, N * H, {Cut::kColumns, "heads", config_.has_output_bias});
    norm({Part::kFfnNorm, layer}, D);
    if (config_.has_experts(layer)) {
      add_experts(layer);
    } else {
      feed_forward({Part::kGate, Part::kUp, Part::kDown}, {Part::kGate, layer}, "ffn");
    }
  }

  struct FeedForwardParts {
    Part gate, up, down;
  };

  void feed_forward(const FeedForwardParts& parts, const PartPlace& place,
                    const std::string& split) {
    const int64_t D = config_.width, F = rules_.splits.at(split).size;
    const bool has_bias = config_.has_mlp_bias && parts.gate == Part::kGate;
    matrix({parts.gate, place.layer, place.expert}, F, D, {Cut::kRows, split, has_bias});
    matrix({parts.up, place.layer, place.expert}, F, D, {Cut::kRows, split, has_bias});
    matrix({parts.down, place.layer, place.expert}, D, F, {Cut::kColumns, split, has_bias});
  }

  void add_experts(int64_t layer) {
    const ExpertsConfig& experts = config_.experts;
    matrix({Part::kRouter, layer}, experts.num_experts, config_.width, {});
    for (int64_t e = 0; e < experts.num_experts; ++e) {
      feed_forward({Part::kExpertGate, Part::kExpertUp, Part::kExpertDown},
                   {Part::kExpertGate, layer, e}, "expert_ffn");
    }
    if (experts.shared_ffn_width == 0) return;
    shared_router(layer);
    feed_forward({Part::kSharedGate, Part::kSharedUp, Part::kSharedDown},
                 {Part::kSharedGate, layer}, "shared_ffn");
  }

  // A matrix of one row; GGUF has it as a vector.
  void shared_router(int64_t layer) {
    const PartPlace place{Part::kSharedRouter, layer};
    const WeightRule rule = place_in_file(place, 1, config_.width);
    const io::TensorMeta* tensor = file_.find(rule.file_name);
    const bool is_vector = tensor != nullptr && tensor->shape.size() == 1;
    add(rule.name, rule.file_name, is_vector ? 0 : 1, config_.width);
  }

  void norm(const PartPlace& place, int64_t size) {
    const WeightRule rule = place_in_file(place, 0, size);
    add(rule.name, rule.file_name, 0, size);
  }

  void norm_of_heads(const PartPlace& place, int64_t size, const std::string& split) {
    norm(place, size);
    rules_.weights.back().cut = Cut::kRows;
    rules_.weights.back().split = split;
  }

  void matrix(const PartPlace& place, int64_t out, int64_t in, const HowCut& how) {
    const WeightRule rule = place_in_file(place, out, in);
    const std::string file_bias = rule.matrix().base + ".bias";
    const auto cut = [&](WeightRule& weight) {
      weight.cut = how.cut;
      weight.split = how.split;
      weight.reorder = rope_order(how.rope_heads);
    };
    if (rule.stack_size == 0 && (how.has_bias || file_.find(file_bias) != nullptr)) {
      WeightRule& bias = add(rule.base() + ".bias", file_bias, 0, out);
      if (how.cut == Cut::kRows) cut(bias);
    }
    cut(rules_.weights.emplace_back(rule));
  }

  // GGUF keeps the q and k rows of a Llama's head as pairs (0, H/2), (1, H/2 + 1), … for its own
  // rope; those of its other architectures are in the model's order.
  std::vector<io::ShardStep> rope_order(int64_t heads) const {
    const bool is_paired =
        file_.is_gguf() && (config_.family == "llama" || config_.family == "mixtral");
    if (heads == 0 || !is_paired) return {};
    io::ShardStep step;
    step.function = "unpermute_rope";
    step.arguments.emplace_back(heads);
    return {step};
  }

  // The weight's names in model and file.
  WeightRule place_in_file(const PartPlace& place, int64_t out, int64_t in) const {
    WeightRule rule;
    rule.name = model_name(config_, place) + ".weight";
    rule.file_name = rule.name;
    rule.out = out;
    rule.in = in;
    if (file_.is_gguf()) rule.file_name = gguf_name(place) + ".weight";
    if (is_expert_part(place.part)) find_expert(place, rule);
    return rule;
  }

  // Experts are stacked in GGUF and in MLX's folders, single in Hugging Face's and in old GGUF.
  void find_expert(const PartPlace& place, WeightRule& rule) const {
    const std::string stacked =
        (file_.is_gguf() ? gguf_name(place) : mlx_experts_name(config_, place)) + ".weight";
    const std::string alone = file_.is_gguf() ? old_gguf_expert_name(place) + ".weight" : rule.name;
    if (file_.find(stacked) == nullptr && (!file_.is_gguf() || file_.find(alone) != nullptr)) {
      rule.file_name = alone;
      return;
    }
    rule.file_name = stacked;
    rule.stack_size = config_.experts.num_experts;
    rule.stack_index = place.expert;
  }

  WeightRule& add(const std::string& name, const std::string& file_name, int64_t out, int64_t in) {
    WeightRule& rule = rules_.weights.emplace_back();
    rule.name = name;
    rule.file_name = file_name;
    rule.out = out;
    rule.in = in;
    return rule;
  }

  const ModelConfig& config_;
  const io::TensorFile& file_;
  WeightRules rules_;
};

}  // namespace

WeightRules decoder_rules(const ModelConfig& config, const io::TensorFile& file) {
  return RulesBuilder(config, file).build();
}

}  // namespace weft::models
