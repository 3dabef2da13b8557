#include "weft/train/trainer/exact_run.h"

#include "weft/core/error.h"
#include "weft/models/load/load.h"
#include "weft/models/load/new_model.h"
#include "weft/models/trains_exactly.h"

namespace weft::train {

void check_exact_run(const TrainConfig& config, TrainedPart part) {
  if (!config.train.exact) return;
  core::check<core::ConfigError>(part == TrainedPart::kAll, config.where("train.exact"),
                                 ": expected false where adapters are trained, got true; leave it "
                                 "out");
  // How many rows the vocabulary has changes nothing of what is refused.
  const models::ModelConfig model = run_model_config(config, config.mesh.tp);
  const models::LoadPlan plan =
      config.model.from.empty()
          ? models::make_plan(model, config.mesh.tp)
          : models::make_plan(*io::TensorFile::open(config.model.from), config.mesh.tp);
  models::check_trains_exactly(model, plan);
}

}  // namespace weft::train
