#include "weft/models/decoder/expert_split.h"

#include "weft/core/error.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/decoder/weight_table.h"

namespace weft::models {
namespace {

std::string split_name(int64_t expert) { return core::join("expert ", expert); }

}  // namespace

void split_by_experts(const ModelConfig& config, WeightRules& rules) {
  const int64_t count = config.experts.num_experts;
  core::check<core::ConfigError>(count > 0, "models: experts can't be dealt out to the ranks: a ",
                                 core::quote(config.family),
                                 " without experts; leave the expert split out");
  for (int64_t expert = 0; expert < count; ++expert) {
    DimSplit split;
    split.kind = DimSplit::Kind::kExpert;
    split.size = config.experts.ffn_width;
    split.num_experts = count;
    split.expert = expert;
    rules.splits[split_name(expert)] = split;
  }
  const auto places = part_places(config);
  for (WeightRule& weight : rules.weights) {
    const bool is_bias = weight.name.ends_with(".bias");
    const auto place =
        places.find(is_bias ? weight.name.substr(0, weight.name.rfind('.')) : weight.base());
    if (weight.cut == Cut::kWhole) continue;
    if (place == places.end() || !is_expert_part(place->second.part)) continue;
    weight.split = split_name(place->second.expert);
  }
  if (auto cut = rules.splits.extract(std::string(kExpertFfnSplit))) {
    rules.uncut_splits.insert(std::move(cut));
  }
}

}  // namespace weft::models
