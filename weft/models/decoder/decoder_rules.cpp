#include "weft/models/decoder/decoder_rules.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/families.h"
#include "weft/models/config/mixers/config_gemma4.h"
#include "weft/models/decoder/tied_head.h"
#include "weft/models/decoder/weight_table.h"
#include "weft/models/decoder/weights/mlx_taps.h"
#include "weft/models/decoder/weights/place_in_file.h"
#include "weft/models/decoder/weights/tiled_heads.h"
#include "weft/nn/attention/kv_cache.h"
#include "weft/quant/kernels/panel_kernel.h"

namespace weft::models {
namespace {

DimSplit head_split(int64_t num_heads, const nn::KvHeads& kv, DimSplit::Kind kind) {
  DimSplit split;
  split.kind = kind;
  split.num_heads = num_heads;
  split.num_kv_heads = kv.count;
  split.size = kv.head_dim * (kind == DimSplit::Kind::kQueryHeads ? num_heads : kv.count);
  return split;
}

DimSplit head_split(const ModelConfig& config, DimSplit::Kind kind) {
  return head_split(config.num_heads, {config.num_kv_heads, config.head_dim}, kind);
}

// Where whole units don't suffice they are cut at runs of 8, which is lossless too.
DimSplit even_split(int64_t size, int64_t unit) {
  DimSplit split;
  split.size = size;
  split.unit = unit;
  split.fine_unit = unit > 8 && unit % 8 == 0 ? 8 : 0;
  return split;
}

// A convolution's channels with those of its gates and its input: cut where the channels are.
DimSplit gated_split(const DimSplit& channels) {
  DimSplit gated;
  gated.kind = DimSplit::Kind::kSegments;
  gated.segments.assign(3, channels.size);
  gated.size = 3 * channels.size;
  gated.num_runs = channels.size / channels.unit;
  if (channels.fine_unit > 0) gated.num_fine_runs = channels.size / channels.fine_unit;
  return gated;
}

// All at the same key heads of gated delta nets.
DimSplit delta_split(const nn::DeltaHeads& heads, std::vector<int64_t> segments) {
  DimSplit split;
  split.kind = DimSplit::Kind::kSegments;
  split.size = std::accumulate(segments.begin(), segments.end(), int64_t{0});
  split.segments = std::move(segments);
  split.num_runs = heads.num_key_heads;
  return split;
}

// Tensors beside a model of texts.
constexpr const char* kOfOtherModels[] = {"mtp.",
                                          "model.visual.",
                                          "model.vision_tower.",
                                          "model.embed_vision.",
                                          "model.audio_tower.",
                                          "model.embed_audio.",
                                          "vision_tower.",
                                          "embed_vision.",
                                          "audio_tower.",
                                          "embed_audio."};

// What layers that reuse keys and values don't read.
constexpr const char* kKeysAndValues[] = {
    ".self_attn.k_proj.", ".self_attn.v_proj.", ".self_attn.k_norm.", ".self_attn.v_norm.",
    ".attn_k.",           ".attn_v.",           ".attn_k_norm."};

FirstNumbers first_numbers(Part part) {
  if (part == Part::kDeltaDecayLog) return FirstNumbers::kLogs;
  const bool is_factor =
      part == Part::kLayerFactor || part == Part::kRouterFactors || part == Part::kExpertFactors;
  const bool is_one = part == Part::kDeltaStepBias || part == Part::kDeltaNorm || is_factor;
  return is_one ? FirstNumbers::kOnes : FirstNumbers::kUsual;
}

class RulesBuilder {
 public:
  RulesBuilder(const ModelConfig& config, const io::TensorFile& file)
      : config_(config), file_(file), is_mlx_(has_mlx_taps(config, file)) {}

  WeightRules build() {
    add_splits();
    for (const PartPlace& place : weight_places(config_)) add_weight(place);
    rules_.unread = copied_head(config_, file_);
    leave_out_others();
    if (config_.rope_scaling.type == nn::RopeType::kLongRope && file_.is_gguf()) {
      rules_.unread.insert(rules_.unread.end(), {kShortRopeFactors, kLongRopeFactors});
    }
    // What Gemma 4 divides by, the configuration has.
    if (config_.full_layers.is_used()) {
      if (file_.find(kRopeDivisors) != nullptr) rules_.unread.push_back(kRopeDivisors);
    } else if (file_.is_gguf() && file_.find(kRopeDivisors) != nullptr) {
      add_vector(kRopeDivisors, kRopeDivisors, rotated_dims(config_) / 2);
    }
    return std::move(rules_);
  }

 private:
  // Layers behind the model's, which guess more than one token at a time, what sees pictures or
  // hears, and what layers have for keys and values that they take from others.
  void leave_out_others() {
    const FamilyInfo* family = find_family_info(config_.family);
    const bool has_further = family != nullptr && family->has_further_layers;
    const bool is_gemma4 = family != nullptr && has_gemma4_layers(*family);
    if (!has_further && !is_gemma4) return;
    const std::string prefix = file_.is_gguf() ? "blk." : folder_name(file_, "model.layers.");
    for (const io::TensorMeta& tensor : file_.tensors()) {
      const auto is_start = [&](const char* start) { return tensor.name.starts_with(start); };
      if (std::ranges::any_of(kOfOtherModels, is_start)) rules_.unread.push_back(tensor.name);
      if (!tensor.name.starts_with(prefix)) continue;
      char* rest = nullptr;
      const int64_t layer = std::strtoll(tensor.name.c_str() + prefix.size(), &rest, 10);
      const auto is_part = [&](const char* part) {
        return std::string_view(rest).starts_with(part);
      };
      const bool is_reused = layer >= 0 && layer < config_.num_layers &&
                             config_.reuses_keys(layer) &&
                             std::ranges::any_of(kKeysAndValues, is_part);
      const bool is_further = has_further && layer >= config_.num_layers;
      if (is_reused || is_further) rules_.unread.push_back(tensor.name);
    }
  }

  void add_splits() {
    const ExpertsConfig& experts = config_.experts;
    split(kHeadsSplit) = head_split(config_, DimSplit::Kind::kQueryHeads);
    if (config_.has_sinks) {
      split(kHeadCountSplit) = head_split(config_, DimSplit::Kind::kQueryHeads);
      split(kHeadCountSplit).size = config_.num_heads;
    }
    if (config_.latent.is_used()) {
      for (const auto& [name, dim] : {std::pair{kValueHeadsSplit, WeightDim::kValueHeads},
                                      {kKeyValueHeadsSplit, WeightDim::kKeyValueHeads}}) {
        split(name) = head_split(config_, DimSplit::Kind::kQueryHeads);
        split(name).size = size_of(config_, dim);
      }
    } else {
      split(kKvSplit) = head_split(config_, DimSplit::Kind::kKvHeads);
    }
    if (config_.gates_attention) {
      split(kGatedHeadsSplit) = head_split(config_, DimSplit::Kind::kQueryHeads);
      split(kGatedHeadsSplit).size = size_of(config_, WeightDim::kGatedHeads);
    }
    if (config_.full_layers.is_used()) {
      const nn::KvHeads kv = {config_.full_layers.num_kv_heads, config_.full_layers.head_dim};
      split(kFullHeadsSplit) = head_split(config_.num_heads, kv, DimSplit::Kind::kQueryHeads);
      split(kFullKvSplit) = head_split(config_.num_heads, kv, DimSplit::Kind::kKvHeads);
    }
    split(kVocabSplit) = even_split(config_.vocab_size, 1);
    if (config_.layer_inputs.is_used()) {
      split(kInputVocabSplit) = even_split(config_.layer_inputs.vocab_size, 1);
    }
    add_recurrent_splits();
    const int64_t plain_unit = down_unit(Part::kDown, false);
    if (plain_unit > 0) split(kFfnSplit) = even_split(config_.ffn_width, plain_unit);
    const int64_t reusing_ffn = config_.reusing.ffn_width;
    if (reusing_ffn > 0) split(kReusingFfnSplit) = even_split(reusing_ffn, plain_unit);
    const int64_t expert_unit = down_unit(Part::kExpertDown, true);
    if (expert_unit > 0) split(kExpertFfnSplit) = even_split(experts.ffn_width, expert_unit);
    const int64_t shared_unit =
        experts.shared_ffn_width > 0 ? down_unit(Part::kSharedDown, true) : 0;
    if (shared_unit > 0) split(kSharedFfnSplit) = even_split(experts.shared_ffn_width, shared_unit);
  }

  void add_recurrent_splits() {
    const RecurrentConfig& recurrent = config_.recurrent;
    if (recurrent.layers.empty()) return;
    if (recurrent.kind == RecurrentKind::kShortConvolution) return add_channel_splits();
    const nn::DeltaHeads& heads = recurrent.heads;
    split(kDeltaChannelSplit) =
        delta_split(heads, {heads.key_features(), heads.key_features(), heads.value_features()});
    split(kDeltaFeatureSplit) = delta_split(heads, {heads.value_features()});
    split(kDeltaHeadSplit) = delta_split(heads, {heads.num_value_heads});
  }

  void add_channel_splits() {
    const int64_t unit = column_unit(Part::kConvolutionOut, &ModelConfig::is_recurrent);
    split(kChannelSplit) = even_split(config_.width, unit);
    split(kGatedChannelSplit) = gated_split(split(kChannelSplit));
  }

  DimSplit& split(std::string_view name) { return rules_.splits[std::string(name)]; }

  // The run that no quant group of the layers' down projections is cut by; 0 without such layers.
  int64_t down_unit(Part part, bool of_experts) const {
    return of_experts ? column_unit(part, &ModelConfig::has_experts)
                      : column_unit(part, &ModelConfig::has_plain_ffn);
  }

  // The same of matrices that are cut by columns, in the layers that have them.
  int64_t column_unit(Part part, bool (ModelConfig::*is_in)(int64_t) const) const {
    int64_t unit = 0;
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      if (!(config_.*is_in)(layer)) continue;
      const io::MatrixRef down = place_in_file(config_, file_, {part, layer}).matrix();
      const int64_t own =
          io::has_matrix(file_, down.base) ? io::matrix_format(file_, down).in_unit : 1;
      unit = unit == 0 ? own : std::lcm(unit, own);
    }
    return unit;
  }

  void add_weight(const PartPlace& place) {
    const WeightRow& row = weight_row(config_, place);
    WeightRule weight = place_in_file(config_, file_, place);
    const bool is_added = file_.is_gguf() || is_mlx_;
    if (is_added && is_norm_part(place.part)) weight.stored_offset = config_.norm_offset;
    if (is_mlx_) std::ranges::reverse(weight.element_shape);
    weight.is_stored_as_decay = file_.is_gguf() && place.part == Part::kDeltaDecayLog;
    weight.first_numbers = first_numbers(place.part);
    weight.cut = row.shape.cut;
    weight.split = row.shape.split;
    if (row.is_turned) add_rope_order(weight, place.part);
    if (file_.is_gguf()) add_head_order(config_, place.part, weight);
    add_bias(row, weight);
    rules_.weights.push_back(std::move(weight));
  }

  // Biases are added to what a rank has by rows; by columns, once to the sum.
  void add_bias(const WeightRow& row, const WeightRule& weight) {
    const bool is_stated = row.bias != nullptr && row.bias(config_);
    if (weight.is_vector() || (weight.stack_size > 0 && !is_stated)) return;
    const std::string file_base = weight.matrix().base;
    // Where experts are stacked under a bare name, their biases are, too.
    const bool is_bare = file_.find(file_base + "_bias") != nullptr;
    const std::string file_bias = file_base + (is_bare ? "_bias" : ".bias");
    if (!is_stated && file_.find(file_bias) == nullptr) return;
    WeightRule& bias = add_vector(weight.base() + ".bias", file_bias, weight.out);
    bias.stack_size = weight.stack_size;
    bias.stack_index = weight.stack_index;
    bias.reorder = weight.reorder;
    bias.stored_rows = weight.stored_rows;
    if (weight.cut != Cut::kRows) return;
    bias.cut = weight.cut;
    bias.split = weight.split;
  }

  void add_rope_order(WeightRule& weight, Part part) const {
    const FamilyInfo* family = find_family_info(config_.family);
    if (!file_.is_gguf() || family == nullptr || !family->has_paired_rows) return;
    const bool is_query = part == Part::kQuery || part == Part::kQueryNorm;
    io::ShardStep& step = weight.reorder.emplace_back();
    step.function = "unpermute_rope";
    step.arguments.emplace_back(is_query ? config_.num_heads : config_.num_kv_heads);
  }

  WeightRule& add_vector(const std::string& name, const std::string& file_name, int64_t size) {
    WeightRule& rule = rules_.weights.emplace_back();
    rule.name = name;
    rule.file_name = file_name;
    rule.in = size;
    return rule;
  }

  const ModelConfig& config_;
  const io::TensorFile& file_;
  bool is_mlx_;
  WeightRules rules_;
};

}  // namespace

WeightRules decoder_rules(const ModelConfig& config, const io::TensorFile& file) {
  return RulesBuilder(config, file).build();
}

void cut_between_blocks(WeightRules& rules) {
  for (auto& [name, split] : rules.splits) {
    const bool is_vocab = name == kVocabSplit || name == kInputVocabSplit;
    if (!is_vocab) split = split.at_multiples_of(quant::kernels::kBlockColumns);
  }
  const auto channels = rules.splits.find(std::string(kChannelSplit));
  if (channels != rules.splits.end()) {
    rules.splits[std::string(kGatedChannelSplit)] = gated_split(channels->second);
  }
}

}  // namespace weft::models
