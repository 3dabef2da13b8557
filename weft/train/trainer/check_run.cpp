#include "weft/train/trainer/check_run.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/load/load.h"
#include "weft/models/load/new_model.h"
#include "weft/models/trains_exactly.h"
#include "weft/nn/linear/adapt.h"
#include "weft/train/plan/sizes_of_config.h"

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

using Places = std::set<std::string>;

// By stage, the paths of its layers that can have an adapter.
std::vector<Places> layers_of_stages(const TrainConfig& config, const models::ModelConfig& model,
                                     const models::LoadPlan& plan) {
  using models::Part;
  std::vector<Places> stages;
  std::vector<size_t> stage_of_layer;
  for (const int64_t count :
       stage_layers(sizes_of(model), config.mesh.pipe, config.mesh.pipe_layers)) {
    stage_of_layer.insert(stage_of_layer.end(), static_cast<size_t>(count), stages.size());
    stages.emplace_back();
  }
  // The head is a layer of its own, also where its matrix is the embedding's.
  stages.back().insert(models::model_name(model, {Part::kHead}));
  for (const auto& [path, place] : models::part_places(model)) {
    const models::PlannedWeight* weight = plan.find(path + ".weight");
    if (weight == nullptr || weight->rule.is_vector()) continue;
    const bool is_embedding = place.part == Part::kEmbedding;
    if (is_embedding && model.is_tied) stages.back().insert(path);
    if (place.part != Part::kHead) {
      stages[stage_of_layer[static_cast<size_t>(place.layer)]].insert(path);
    }
  }
  return stages;
}

bool has_layer(const Places& places, const std::string& target) {
  return std::ranges::any_of(
      places, [&](const std::string& path) { return nn::is_lora_target(path, target); });
}

// "q_proj" of "model.layers.0.self_attn.q_proj", of all of them.
std::vector<std::string> last_names(const std::vector<Places>& stages) {
  std::set<std::string> names;
  for (const Places& places : stages) {
    for (const std::string& path : places) names.insert(path.substr(path.rfind('.') + 1));
  }
  return {names.begin(), names.end()};
}

void check_targets(const TrainConfig& config, const std::vector<Places>& stages) {
  const std::vector<std::string>& targets = config.lora.targets;
  const std::string where = config.where("lora.targets");
  check<ConfigError>(!targets.empty(), where, ": expected one or more of ",
                     core::list_text(last_names(stages)), ", got none");
  for (const std::string& target : targets) {
    check<ConfigError>(
        std::ranges::any_of(stages, [&](const Places& each) { return has_layer(each, target); }),
        where, ": ", config.model.from, " has no layer ", core::quote(target),
        ", expected some of ", core::list_text(last_names(stages)));
  }
  // A stage that trains nothing would have no gradients to pass on.
  for (size_t i = 0; i < stages.size(); ++i) {
    check<ConfigError>(
        std::ranges::any_of(
            targets, [&](const std::string& target) { return has_layer(stages[i], target); }),
        where, ": stage ", i, " of mesh.pipe ", stages.size(), " has none of ",
        core::list_text(targets),
        ", expected one at least on each stage; name one that every layer has, or use fewer "
        "stages");
  }
}

// Of the matrices that quantize_base means.
void check_not_quantized(const TrainConfig& config, const models::LoadPlan& plan) {
  if (config.lora.quantize_bits == 0) return;
  for (const models::PlannedWeight& weight : plan.weights()) {
    check<ConfigError>(is_plain(weight) || !is_quantized_for_lora(weight.rule.base()),
                       config.where("lora.quantize_bits"), ": expected 0 for ", config.model.from,
                       ", whose ", weight.rule.name, " is quantized already, got ",
                       config.lora.quantize_bits, "; leave it out");
  }
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
  if (part == TrainedPart::kAll) return check_has_gradients(config, plan);
  check_targets(config, layers_of_stages(config, model, plan));
  check_not_quantized(config, plan);
}

}  // namespace weft::train
