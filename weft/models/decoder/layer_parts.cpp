#include "weft/models/decoder/layer_parts.h"

namespace weft::models {

nn::AllToShardedLinear all_to_sharded(const WeightReader& reader, const std::string& base,
                                      const dist::Group& group) {
  return nn::AllToShardedLinear(reader.linear(base, true), group, reader.layout(base));
}

nn::ShardedToAllLinear sharded_to_all(const WeightReader& reader, const std::string& base,
                                      const dist::Group& group) {
  return nn::ShardedToAllLinear(reader.linear(base, false), group, reader.layout(base),
                                reader.vector_or_undefined(base + ".bias"));
}

nn::PartialLinear partial(const WeightReader& reader, const std::string& base, nn::ShardKind kind,
                          const dist::Group& group) {
  return nn::PartialLinear(reader.linear(base, false),
                           nn::LinearCut{kind, reader.layout(base), group});
}

nn::RMSNorm norm(const ModelConfig& config, const WeightReader& reader, const PartPlace& place) {
  return nn::RMSNorm(reader.vector(model_name(config, place) + ".weight"), config.norm_eps);
}

}  // namespace weft::models
