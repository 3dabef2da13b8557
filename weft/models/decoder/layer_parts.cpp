#include "weft/models/decoder/layer_parts.h"

#include "weft/core/error.h"
#include "weft/models/decoder/weight_table.h"
#include "weft/quant/kernels/panel_kernel.h"

namespace weft::models {
namespace {

shard::SumPlan sum_plan(const WeightSource& source, const std::string& split) {
  constexpr const char* kWhere = "models: the same bits on any number of ranks: ";
  constexpr int64_t kRun = quant::kernels::kBlockColumns;
  if (!source.plan().has_split(split)) return {};
  const shard::Layout& layout = source.plan().split(split);
  core::check<core::ConfigError>(layout.num_ranks() <= kMostExactRanks, kWhere, layout.num_ranks(),
                                 " ranks, expected at most ", kMostExactRanks,
                                 "; ask for the usual sums");
  const int64_t run = layout.common_run(0);
  core::check<core::ConfigError>(run % kRun == 0, kWhere, split, " cut at multiples of ", run,
                                 " features, expected multiples of ", kRun,
                                 "; ask for the usual sums or for another number of ranks");
  return source.plan().sum_order(split, kRun).plan(layout, source.rank());
}

}  // namespace

nn::AllToShardedLinear all_to_sharded(const WeightSource& source, const std::string& base,
                                      const dist::Group& group) {
  return nn::AllToShardedLinear(source.linear(base, true), group, source.layout(base));
}

nn::ShardedToAllLinear sharded_to_all(const WeightSource& source, const std::string& base,
                                      const dist::Group& group) {
  return nn::ShardedToAllLinear(source.linear(base, false), group, source.layout(base),
                                source.vector_or_undefined(base + ".bias"));
}

nn::PartialLinear partial(const WeightSource& source, const std::string& base, nn::ShardKind kind,
                          const dist::Group& group) {
  const bool by_rows = kind == nn::ShardKind::kAllToSharded;
  return nn::PartialLinear(source.linear(base, by_rows),
                           nn::LinearCut{kind, source.layout(base), group},
                           by_rows ? at::Tensor() : source.vector_or_undefined(base + ".bias"));
}

shard::HeadShard held_heads(const ModelConfig& config, const WeightSource& source, int64_t layer) {
  const auto split = config.has_full_heads(layer) ? kFullHeadsSplit : kHeadsSplit;
  const shard::Range features = source.plan().split(std::string(split)).of(source.rank()).front();
  const int64_t H = config.head_dim_of(layer);
  return shard::head_shard({features.start / H, features.length / H},
                           config.num_heads / config.num_kv_heads_of(layer));
}

OrderedSums ordered_sums(const WeightSource& source) {
  return {sum_plan(source, std::string(kHeadsSplit)), sum_plan(source, std::string(kFfnSplit))};
}

nn::RMSNorm norm(const ModelConfig& config, const WeightSource& source, const PartPlace& place) {
  return nn::RMSNorm(source.vector(model_name(config, place) + ".weight"), config.norm_eps, false,
                     config.norm_offset);
}

}  // namespace weft::models
