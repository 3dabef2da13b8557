#include "weft/models/load/weight_source.h"

#include <ATen/ops/log.h>

#include "weft/core/error.h"
#include "weft/nn/linear/panel_linear.h"
#include "weft/quant/kernels/panel_kernel.h"

namespace weft::models {
namespace {

constexpr const char* kExact = "models: the same bits on any number of ranks: ";

void check_cut(const shard::Layout& layout, const std::string& split, int64_t block) {
  core::check<core::ConfigError>(layout.num_ranks() <= kMostExactRanks, kExact, layout.num_ranks(),
                                 " ranks, expected at most ", kMostExactRanks,
                                 "; ask for the usual sums");
  const int64_t run = layout.common_run(0);
  core::check<core::ConfigError>(run % block == 0, kExact, split, " cut at multiples of ", run,
                                 " features, expected multiples of ", block,
                                 "; ask for the usual sums or for another number of ranks");
}

// A sum over what one rank holds is its own.
std::shared_ptr<dist::OrderedSum> sum_over(const shard::SumOrder& order,
                                           const shard::Layout& layout, const dist::Group& group) {
  const bool is_alone = layout.num_ranks() == 1;
  const dist::Group own = is_alone ? dist::Group() : group;
  return std::make_shared<dist::OrderedSum>(own, order.plan(layout, own.rank()));
}

}  // namespace

std::shared_ptr<dist::OrderedSum> WeightSource::ordered_sum(const std::string& split,
                                                            const dist::Group& group) const {
  if (!is_exact()) return nullptr;
  std::shared_ptr<dist::OrderedSum>& sum = ordered_[split];
  if (sum != nullptr) return sum;
  constexpr int64_t kBlock = quant::kernels::kBlockColumns;
  const shard::Layout& layout = plan_.split(split);
  check_cut(layout, split, kBlock);
  return sum = sum_over(plan_.sum_order(split, kBlock), layout, group);
}

std::shared_ptr<dist::OrderedSum> WeightSource::ordered_experts(int64_t num_experts,
                                                                const dist::Group& group) const {
  if (!is_exact()) return nullptr;
  std::shared_ptr<dist::OrderedSum>& sum = ordered_[""];
  if (sum != nullptr) return sum;
  const int64_t n = plan_.shares_experts() ? group.size() : 1;
  const shard::Layout layout = shard::make_layout({0, {}, 1}, num_experts, n, "experts");
  return sum = sum_over(LoadPlan::sum_order(num_experts), layout, group);
}

void WeightSource::check_in_order(const nn::LinearLike& linear, const std::string& base) const {
  if (!is_exact()) return;
  const auto* panels = dynamic_cast<const nn::PanelLinearImpl*>(&linear);
  core::check<core::ConfigError>(
      panels != nullptr && panels->weight.is_exact, kExact, core::quote(base + ".weight"),
      ", expected rows of whole blocks of 32 columns in any type but one of 8-bit floats; ask for "
      "the usual sums");
}

shard::Layout WeightSource::layout(const std::string& base) const {
  const WeightRule& rule = plan_.require(base + ".weight").rule;
  shard::Layout layout = plan_.split(rule.split);
  layout.dim = rule.cut == Cut::kColumns ? 1 : 0;
  return layout;
}

at::Tensor from_stored(const at::Tensor& stored, const WeightRule& rule, const std::string& where) {
  if (!rule.is_stored_as_decay)
    return rule.stored_offset == 0 ? stored : stored - rule.stored_offset;
  core::check<core::FormatError>(
      (stored < 0).all().item<bool>(), where, ": tensor ", core::quote(rule.file_name),
      ": numbers of at least 0, expected negative ones, which say how fast a state is forgotten");
  return at::log(-stored);
}

}  // namespace weft::models
