#include "weft/models/decoder/decoder_rules.h"

#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/models/config/families.h"
#include "weft/models/decoder/tied_head.h"
#include "weft/models/decoder/weight_table.h"

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

class RulesBuilder {
 public:
  RulesBuilder(const ModelConfig& config, const io::TensorFile& file)
      : config_(config), file_(file) {}

  WeightRules build() {
    add_splits();
    for (const PartPlace& place : weight_places(config_)) add_weight(place);
    rules_.unread = copied_head(config_, file_);
    if (file_.is_gguf() && file_.find(kRopeDivisors) != nullptr) {
      add_vector(kRopeDivisors, kRopeDivisors, rotated_dims(config_) / 2);
    }
    return std::move(rules_);
  }

 private:
  void add_splits() {
    const ExpertsConfig& experts = config_.experts;
    split(kHeadsSplit) = head_split(config_, DimSplit::Kind::kQueryHeads);
    split(kKvSplit) = head_split(config_, DimSplit::Kind::kKvHeads);
    split(kVocabSplit) = even_split(config_.vocab_size, 1);
    const int64_t plain_unit = down_unit(Part::kDown, false);
    if (plain_unit > 0) split(kFfnSplit) = even_split(config_.ffn_width, plain_unit);
    const int64_t expert_unit = down_unit(Part::kExpertDown, true);
    if (expert_unit > 0) split(kExpertFfnSplit) = even_split(experts.ffn_width, expert_unit);
    if (experts.shared_ffn_width > 0) {
      const int64_t unit = down_unit(Part::kSharedDown, true);
      split(kSharedFfnSplit) = even_split(experts.shared_ffn_width, unit);
    }
  }

  DimSplit& split(std::string_view name) { return rules_.splits[std::string(name)]; }

  // The run that no quant group of the layers' down projections is cut by; 0 without such layers.
  int64_t down_unit(Part part, bool of_experts) const {
    int64_t unit = 0;
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      if (config_.has_experts(layer) != of_experts) continue;
      const io::MatrixRef down = place_in_file({part, layer}).matrix();
      const int64_t own = is_stored(down.base) ? io::matrix_format(file_, down).in_unit : 1;
      unit = unit == 0 ? own : std::lcm(unit, own);
    }
    return unit;
  }

  void add_weight(const PartPlace& place) {
    const WeightRow& row = weight_row(config_, place.part);
    WeightRule weight = place_in_file(place);
    weight.cut = row.shape.cut;
    weight.split = row.shape.split;
    if (row.is_turned) add_rope_order(weight, place.part);
    add_bias(row, weight);
    rules_.weights.push_back(std::move(weight));
  }

  // Biases are added to what a rank has by rows; by columns, once to the sum.
  void add_bias(const WeightRow& row, const WeightRule& weight) {
    if (weight.is_vector() || weight.stack_size > 0) return;
    const std::string file_bias = weight.matrix().base + ".bias";
    const bool is_stated = row.bias != nullptr && config_.*row.bias;
    if (!is_stated && file_.find(file_bias) == nullptr) return;
    WeightRule& bias = add_vector(weight.base() + ".bias", file_bias, weight.out);
    if (weight.cut != Cut::kRows) return;
    bias.cut = weight.cut;
    bias.split = weight.split;
    bias.reorder = weight.reorder;
    bias.stored_rows = weight.stored_rows;
  }

  void add_rope_order(WeightRule& weight, Part part) const {
    const FamilyInfo* family = find_family_info(config_.family);
    if (!file_.is_gguf() || family == nullptr || !family->has_paired_rows) return;
    const bool is_query = part == Part::kQuery || part == Part::kQueryNorm;
    io::ShardStep& step = weight.reorder.emplace_back();
    step.function = "unpermute_rope";
    step.arguments.emplace_back(is_query ? config_.num_heads : config_.num_kv_heads);
  }

  // The weight's names in model and file, and its shape.
  WeightRule place_in_file(const PartPlace& place) const {
    const WeightRow& row = weight_row(config_, place.part);
    WeightRule rule;
    rule.name = filled_name(row.model, place) + ".weight";
    rule.file_name = rule.name;
    rule.out = size_of(config_, row.shape.out);
    rule.in = size_of(config_, row.shape.in);
    if (file_.is_gguf()) rule.file_name = filled_name(row.gguf, place) + ".weight";
    if (row.is_of_expert()) find_expert(place, rule);
    find_fused(place, rule);
    if (row.shape.out == WeightDim::kOne) find_one_row(rule);
    return rule;
  }

  bool is_stored(const std::string& base) const {
    return file_.find(base + ".weight") != nullptr || file_.find(base + ".qweight") != nullptr;
  }

  // The weight's rows of a tensor that holds those of others, too, unless each stands alone, as in
  // what weft has cut.
  void find_fused(const PartPlace& place, WeightRule& rule) const {
    const FusedRow* fused = fused_row(config_, place.part);
    if (fused == nullptr) return;
    const auto name = [&](std::string_view model, std::string_view gguf) {
      return filled_name(file_.is_gguf() ? gguf : model, place);
    };
    const WeightRow& first = weight_row(config_, fused->parts.front());
    const std::string base = name(fused->model, fused->gguf);
    if (!is_stored(base) || is_stored(name(first.model, first.gguf))) return;
    const FusedPlace own = fused_place(config_, *fused, place.part);
    rule.file_name = base + ".weight";
    rule.stored_rows = own.num_rows;
    rule.reorder.push_back({"narrow", {int64_t{0}, own.first_row, rule.out}, {}, {}});
  }

  // A matrix of one row is a vector in GGUF.
  void find_one_row(WeightRule& rule) const {
    const io::TensorMeta* tensor = file_.find(rule.file_name);
    if (tensor != nullptr && tensor->shape.size() == 1) rule.out = 0;
  }

  // Experts are stacked in GGUF and in MLX's folders, single in Hugging Face's and in old GGUF.
  void find_expert(const PartPlace& place, WeightRule& rule) const {
    const std::string stacked =
        (file_.is_gguf() ? gguf_name(config_, place) : mlx_experts_name(config_, place)) +
        ".weight";
    const std::string alone =
        file_.is_gguf() ? old_gguf_expert_name(config_, place) + ".weight" : rule.name;
    if (file_.find(stacked) == nullptr && (!file_.is_gguf() || file_.find(alone) != nullptr)) {
      rule.file_name = alone;
      return;
    }
    rule.file_name = stacked;
    rule.stack_size = config_.experts.num_experts;
    rule.stack_index = place.expert;
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
  WeightRules rules_;
};

}  // namespace

WeightRules decoder_rules(const ModelConfig& config, const io::TensorFile& file) {
  return RulesBuilder(config, file).build();
}

}  // namespace weft::models
