#include "weft/models/load/stage.h"

#include "weft/core/error.h"

namespace weft::models {

Stage make_stage(const StageLayers& layers, int64_t num_layers) {
  if (!layers) return {{0, num_layers}, true, true};
  core::check<core::ConfigError>(
      layers->start >= 0 && layers->length > 0 && layers->end() <= num_layers,
      "models.Stage: layers from ", layers->start, " to ", layers->end(),
      ", expected at least one of the model's ", num_layers);
  return {*layers, layers->start == 0, layers->end() == num_layers};
}

}  // namespace weft::models
