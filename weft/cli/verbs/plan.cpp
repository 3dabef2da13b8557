#include <nlohmann/json.hpp>

#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
#include "weft/cli/verbs/train_config.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/core/log.h"
#include "weft/train/config/check_config.h"
#include "weft/train/plan/plan_text.h"

namespace weft::cli {
namespace {

using train::Hardware;

// The file's own mesh, which its batch must fit.
std::string own_mesh(const train::TrainConfig& config, const train::ModelSizes& model,
                     const Hardware& hardware, bool is_json) {
  train::check_config(config);
  train::check_model_fits(
      config, {model.num_layers, model.num_heads, model.vocab_size, model.intermediate_size});
  const train::MeshPlan plan = train::plan_mesh(train::plan_job(config, model), hardware);
  if (is_json) return core::dump_json(train::mesh_plan_json(plan, hardware)) + "\n";
  return train::run_header(plan.job) + "\n" + train::mesh_plan_text(plan, hardware);
}

// Any mesh of so many ranks.
std::string best_meshes(train::TrainConfig config, const train::ModelSizes& model,
                        const Hardware& hardware, const PlanOptions& options) {
  const int64_t microbatch = config.batch.microbatch;
  config.mesh.replicas = config.mesh.dp = config.mesh.tp = 1;
  config.batch.microbatch = 0;
  train::check_config(config);
  const train::PlanJob job = train::plan_job(config, model);
  const auto search = train::search_meshes(job, options.ranks, hardware, microbatch);
  if (!options.is_json) return train::search_text(search, job, hardware, options.top);
  return core::dump_json(train::search_json(search, job, hardware, options.top)) + "\n";
}

void warn_of_exact_plans(const train::TrainConfig& config) {
  if (!config.train.exact) return;
  core::log(
      core::LogLevel::kWarn,
      "plan: train.exact: memory is that of an exact run; collectives and time are those of a "
      "usual one, which is faster");
}

}  // namespace

int run_plan(const PlanOptions& options) {
  const Hardware& hardware = train::find_hardware(options.hardware);
  train::TrainConfig config = read_config(options.run);
  const train::ModelSizes model = model_sizes(config);
  const std::string text = options.ranks == 0 ? own_mesh(config, model, hardware, options.is_json)
                                              : best_meshes(config, model, hardware, options);
  // Behind what may refuse, so that a refusal is one line.
  warn_of_exact_plans(config);
  TextOutput().write(text);
  return 0;
}

}  // namespace weft::cli
