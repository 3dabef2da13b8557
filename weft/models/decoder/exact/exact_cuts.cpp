#include "weft/models/decoder/exact/exact_cuts.h"

#include <string>
#include <utility>

#include "weft/core/error.h"
#include "weft/models/decoder/weight_table.h"
#include "weft/models/options/exact_options.h"
#include "weft/models/trains_exactly.h"

namespace weft::models {
namespace {

using nn::ordered::HeadCut;
using nn::ordered::InputSum;
using nn::ordered::LinearRows;

ExactCut cut_of(const LoadPlan& plan, std::string_view split) {
  const std::string name(split);
  return {plan.sum_order(name, 1), plan.split(name)};
}

}  // namespace

std::shared_ptr<dist::OrderedSum> ExactCut::sum(const dist::Group& group) const {
  return std::make_shared<dist::OrderedSum>(group, order.plan(layout, group.rank()));
}

void check_trains_exactly(const ModelConfig& config, int64_t ranks) {
  check_exact_options(config);
  core::check<core::ConfigError>(ranks <= kMostExactRanks, kExactTraining, ": ", ranks,
                                 " ranks, expected at most ", kMostExactRanks,
                                 "; cut over data instead, or leave train.exact out");
}

void check_trains_exactly(const ModelConfig& config, const LoadPlan& plan) {
  check_trains_exactly(config, plan.num_ranks());
  for (const PlannedWeight& weight : plan.weights()) {
    const bool is_plain = weight.rule.is_vector() || io::makes_plain(weight.format.kind);
    core::check<core::ConfigError>(is_plain, kExactTraining, ": ", weight.rule.name,
                                   " is quantized, expected plain numbers; leave train.exact out");
  }
}

std::optional<ExactCuts> exact_cuts(const ModelConfig& config, const LoadPlan& plan) {
  if (!has_exact_options(config) || plan.num_ranks() > kMostExactRanks) return std::nullopt;
  return ExactCuts{cut_of(plan, kHeadsSplit), cut_of(plan, kFfnSplit), cut_of(plan, kVocabSplit)};
}

HeadCut head_cut(const ModelConfig& config, const ExactCut& heads, const dist::Group& group) {
  HeadCut cut;
  cut.group = group;
  cut.num_heads = config.num_heads;
  cut.num_kv_heads = config.num_kv_heads;
  for (const int64_t length : heads.layout.lengths()) {
    cut.heads_of_rank.push_back(length / config.head_dim);
  }
  const shard::Range own = heads.layout.of(group.rank()).front();
  cut.own = shard::head_shard({own.start / config.head_dim, own.length / config.head_dim},
                              cut.heads_per_kv());
  return cut;
}

std::shared_ptr<const InputSum> input_of_heads(const ModelConfig& config, const HeadCut& cut,
                                               std::shared_ptr<dist::OrderedSum> sum) {
  const int64_t H = config.head_dim;
  auto input = std::make_shared<InputSum>();
  for (const shard::Range& piece : sum->plan().pieces) {
    std::vector<LinearRows>& parts = input->pieces.emplace_back();
    for (int64_t head = piece.start / H; head < piece.end() / H; ++head) {
      const int64_t of_whole = cut.own.heads.start + head;
      if (of_whole % cut.heads_per_kv() == 0) {
        const int64_t kv = of_whole / cut.heads_per_kv() - cut.own.kv_heads.start;
        parts.push_back({1, {kv * H, H}});
        parts.push_back({2, {kv * H, H}});
      }
      const bool goes_on = !parts.empty() && parts.back().linear == 0;
      if (goes_on) {
        parts.back().rows.length += H;
      } else {
        parts.push_back({0, {head * H, H}});
      }
    }
  }
  input->sum = std::move(sum);
  return input;
}

std::shared_ptr<const InputSum> input_of_alike(size_t count,
                                               std::shared_ptr<dist::OrderedSum> sum) {
  auto input = std::make_shared<InputSum>();
  for (const shard::Range& piece : sum->plan().pieces) {
    std::vector<LinearRows>& parts = input->pieces.emplace_back();
    for (size_t linear = 0; linear < count; ++linear) parts.push_back({linear, piece});
  }
  input->sum = std::move(sum);
  return input;
}

}  // namespace weft::models
