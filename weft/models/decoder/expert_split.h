#pragma once

#include "weft/models/config/config.h"
#include "weft/models/load/weight_rules.h"

namespace weft::models {

/// Changes the rules of a decoder so that each rank holds whole experts (ExpertSplit::kExperts):
/// each belongs to one rank, by its number in every layer alike. Shared experts stay cut by ffn.
/// Throws ConfigError for a model without experts.
void split_by_experts(const ModelConfig& config, WeightRules& rules);

}  // namespace weft::models
