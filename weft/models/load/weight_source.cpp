#include "weft/models/load/weight_source.h"

namespace weft::models {

shard::Layout WeightSource::layout(const std::string& base) const {
  const WeightRule& rule = plan_.require(base + ".weight").rule;
  shard::Layout layout = plan_.split(rule.split);
  layout.dim = rule.cut == Cut::kColumns ? 1 : 0;
  return layout;
}

}  // namespace weft::models
