#include "weft/train/trainer/check_run.h"

#include "weft/core/error.h"
#include "weft/models/load/load.h"
#include "weft/models/load/new_model.h"
#include "weft/models/trains_exactly.h"

namespace weft::train {
namespace {

using core::check;
using core::ConfigError;

bool is_plain(const models::PlannedWeight& weight) {
  return weight.rule.is_vector() || io::makes_plain(weight.format.kind);
}

// What a file holds quantized has no gradient: a run would train the norms alone, and a checkpoint
// of it would have no matrices.
void check_has_gradients(const TrainConfig& config, const models::LoadPlan& plan) {
  for (const models::PlannedWeight& weight : plan.weights()) {
    check<ConfigError>(is_plain(weight), config.where("model.from"), ": ", config.model.from, ": ",
                       weight.rule.name,
                       " is quantized, expected plain numbers; train adapters "
                       "beside it with weft lora, or have weft convert write it as bf16 first");
  }
}

void check_positions(const TrainConfig& config, const models::ModelConfig& model) {
  const int64_t length = config.batch.sequence_length;
  check<ConfigError>(length <= model.max_positions, config.where("batch.sequence_length"),
                     ": expected at most the ", model.max_positions, " positions of ",
                     config.model.from, ", got ", length, "; use shorter sequences");
}

}  // namespace

void check_run(const TrainConfig& config, TrainedPart part, int64_t vocab_size) {
  const bool is_exact = config.train.exact;
  check<ConfigError>(!is_exact || part == TrainedPart::kAll, config.where("train.exact"),
                     ": expected false where adapters are trained, got true; leave it out");
  // How many rows the vocabulary has changes nothing of what is refused below.
  const models::ModelConfig model =
      run_model_config(config, vocab_size == 0 ? config.mesh.tp : vocab_size);
  if (config.model.from.empty()) {
    if (is_exact) models::check_trains_exactly(model, models::make_plan(model, config.mesh.tp));
    return;
  }
  check_positions(config, model);
  const auto plan = models::make_plan(*io::TensorFile::open(config.model.from), config.mesh.tp);
  if (is_exact) models::check_trains_exactly(model, plan);
  if (part == TrainedPart::kAll) check_has_gradients(config, plan);
}

}  // namespace weft::train
