#include "weft/models/options/exact_options.h"

#include "weft/core/error.h"
#include "weft/models/options/options.h"

namespace weft::models {
namespace {

constexpr OptionSet kTrainsExactlyWith = {
    Option::kWindows,           Option::kQkvBias,         Option::kOutputBias,
    Option::kMlpBias,           Option::kNormsOfEachHead, Option::kPartialRope,
    Option::kLayersWithoutRope, Option::kEmbeddingScale,  Option::kAttentionScale,
    Option::kResidualScale,     Option::kLogitsScale,     Option::kRopeOfWindows,
    Option::kQueryGrowth,
};

OptionSet unknown_options(const ModelConfig& config) {
  return options_in_use(config).without(kTrainsExactlyWith);
}

}  // namespace

bool has_exact_options(const ModelConfig& config) { return unknown_options(config).is_empty(); }

void check_exact_options(const ModelConfig& config) {
  core::check<core::ConfigError>(has_exact_options(config), kExactTraining, ": ", config.family,
                                 " with ", names_of(unknown_options(config)),
                                 ", expected a model without; leave train.exact out");
}

}  // namespace weft::models
