#include "weft/models/decoder/layer_parts.h"

#include "weft/models/decoder/weight_table.h"

namespace weft::models {

nn::AllToShardedLinear all_to_sharded(const WeightSource& source, const std::string& base,
                                      const dist::Group& group) {
  return nn::AllToShardedLinear(source.linear(base, true), group, source.layout(base));
}

nn::ShardedToAllLinear sharded_to_all(const WeightSource& source, const std::string& base,
                                      const dist::Group& group) {
  nn::ShardedToAllLinear linear(source.linear(base, false), group, source.layout(base),
                                source.vector_or_undefined(base + ".bias"));
  linear->set_ordered(
      source.ordered_sum(source.plan().require(base + ".weight").rule.split, group));
  return linear;
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

nn::RMSNorm norm(const ModelConfig& config, const WeightSource& source, const PartPlace& place) {
  return nn::RMSNorm(source.vector(model_name(config, place) + ".weight"), config.norm_eps, false,
                     config.norm_offset);
}

}  // namespace weft::models
