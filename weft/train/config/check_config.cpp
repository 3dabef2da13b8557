#include "weft/train/config/check_config.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/train/checkpoint/folder.h"
#include "weft/train/checkpoint/manifest.h"
#include "weft/train/data/documents.h"
#include "weft/train/pipeline/stage_layers.h"

namespace weft::train {
namespace {

using core::check;
using core::ConfigError;

constexpr int64_t kFfnMultiple = 32;

// What a model that is read has of its own.
struct OwnKey {
  const char* name;
  const char* what = "sizes";
};
constexpr OwnKey kOwnKeys[] = {{"model.vocab_size"},
                               {"model.hidden_size"},
                               {"model.num_layers"},
                               {"model.num_heads"},
                               {"model.head_dim"},
                               {"model.num_kv_heads"},
                               {"model.intermediate_size"},
                               {"model.max_positions"},
                               {"model.family", "a family"},
                               {"model.rope_base", "a base"},
                               {"model.norm_eps", "a number"},
                               {"model.tied", "a head"},
                               {"model.init_std", "weights"}};

// "1, 2 and 4": the divisors of `number`.
std::string divisors_text(int64_t number) {
  std::vector<int64_t> divisors;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i == 0) divisors.push_back(i);
  }
  for (size_t i = divisors.size(); i-- > 0;) {
    if (divisors[i] * divisors[i] != number) divisors.push_back(number / divisors[i]);
  }
  std::string text;
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (i > 0) text += i + 1 == divisors.size() ? " and " : ", ";
    text += std::to_string(divisors[i]);
  }
  return text;
}

// "6 and 12": the multiples of `step` around `number`.
std::string multiples_text(int64_t number, int64_t step) {
  const int64_t below = number / step * step;
  if (below == 0) return std::to_string(step) + " would work";
  return core::join(below, " and ", below + step, " would work");
}

void check_required(const TrainConfig& config, const char* name, int64_t value) {
  check<ConfigError>(value > 0, config.where(name), ": is required; write it in the file");
}

void check_batch(const TrainConfig& config) {
  check_required(config, "batch.sequences", config.batch.sequences);
  check_required(config, "batch.sequence_length", config.batch.sequence_length);
  const int64_t ranks = config.mesh.num_data_ranks();
  const int64_t sequences = config.batch.sequences;
  check<ConfigError>(sequences % ranks == 0, config.where("batch.sequences"),
                     ": expected a multiple of ", ranks, " (mesh.replicas ", config.mesh.replicas,
                     " x mesh.dp ", config.mesh.dp, "), got ", sequences, "; ",
                     multiples_text(sequences, ranks));
  const int64_t microbatch = config.batch.microbatch;
  const int64_t per_rank = sequences / ranks;
  check<ConfigError>(microbatch == 0 || per_rank % microbatch == 0,
                     config.where("batch.microbatch"), ": expected a divisor of ", per_rank,
                     " (batch.sequences ", sequences, " over ", ranks, " data ranks), got ",
                     microbatch, "; ", divisors_text(per_rank), " would work");
}

void check_schedule(const TrainConfig& config) {
  const int64_t steps = config.train.steps;
  const ScheduleSection& schedule = config.schedule;
  check_required(config, "train.steps", steps);
  check<ConfigError>(schedule.warmup_steps <= steps, config.where("schedule.warmup_steps"),
                     ": expected at most train.steps ", steps, ", got ", schedule.warmup_steps,
                     "; warm up for fewer steps");
  check<ConfigError>(schedule.decay_steps == 0 || schedule.name == "wsd",
                     config.where("schedule.decay_steps"), ": expected none for ", schedule.name,
                     schedule.name == "constant" ? "" : ", which falls to the last step", ", got ",
                     schedule.decay_steps, "; leave it out or choose wsd");
  const int64_t rest = steps - schedule.warmup_steps;
  check<ConfigError>(schedule.decay_steps <= rest, config.where("schedule.decay_steps"),
                     ": expected at most ", rest, " (train.steps ", steps,
                     " less schedule.warmup_steps ", schedule.warmup_steps, "), got ",
                     schedule.decay_steps, "; decay for fewer steps");
}

void check_optimizer(const TrainConfig& config) {
  const std::vector<double>& betas = config.optimizer.betas;
  check<ConfigError>(betas.size() == 2 && betas[0] < 1 && betas[1] < 1,
                     config.where("optimizer.betas"),
                     ": expected two numbers from 0 to below 1, got ", core::list_text(betas),
                     "; e.g. [0.9, 0.95]");
  const std::string& name = config.optimizer.name;
  const bool has_momentum = name == "sgd" || name == "muon";
  check<ConfigError>(!has_momentum || config.optimizer.momentum < 1,
                     config.where("optimizer.momentum"), ": expected 0 to below 1 for ", name,
                     ", got ", config.optimizer.momentum, "; e.g. 0.9");
}

void check_data(const TrainConfig& config) {
  const DataSection& data = config.data;
  check<ConfigError>(data.eval.empty() || data.eval_fraction == 0,
                     config.where("data.eval_fraction"), ": expected 0 beside data.eval, got ",
                     data.eval_fraction, "; give one of the two");
  check<ConfigError>(data.eval_fraction < 1, config.where("data.eval_fraction"),
                     ": expected less than 1, got ", data.eval_fraction,
                     "; something must be left to train on");
  const bool has_eval = !data.eval.empty() || data.eval_fraction > 0;
  check<ConfigError>(config.eval.every == 0 || has_eval, config.where("eval.every"),
                     ": evaluation every ", config.eval.every,
                     " steps, but no data for it; give data.eval or data.eval_fraction");
}

void check_dropout(const TrainConfig& config) {
  for (const auto& [name, rate] : {std::pair("train.dropout", config.train.dropout),
                                   std::pair("lora.dropout", config.lora.dropout)}) {
    check<ConfigError>(rate < 1, config.where(name), ": expected less than 1, got ", rate,
                       "; something must be left");
  }
}

// What has one order of sums; that of a model, the model says.
void check_exact(const TrainConfig& config) {
  if (!config.train.exact) return;
  const std::string& optimizer = config.optimizer.name;
  const struct {
    bool is_known;
    const char* name;
    std::string got, instead;
  } rows[] = {
      {config.mesh.pipe == 1, "mesh.pipe", std::to_string(config.mesh.pipe), "1"},
      {config.mesh.tp <= kMostExactModelRanks, "mesh.tp", std::to_string(config.mesh.tp),
       core::join("at most ", kMostExactModelRanks)},
      {config.train.dtype == "float32", "train.dtype", config.train.dtype, "float32"},
      {config.train.dropout == 0, "train.dropout", core::join(config.train.dropout), "0"},
      {!config.train.sequence_parallel, "train.sequence_parallel", "true", "false"},
      {optimizer != "adafactor" && optimizer != "muon", "optimizer.name", optimizer,
       "adamw, sgd or lion"},
  };
  for (const auto& row : rows) {
    check<ConfigError>(row.is_known, config.where(row.name), ": expected ", row.instead,
                       " with train.exact, got ", row.got, "; change it or leave train.exact out");
  }
}

void check_exists(const TrainConfig& config, const char* name, const std::string& path) {
  std::error_code error;
  check<ConfigError>(path.empty() || std::filesystem::exists(path, error), config.where(name),
                     ": no such file or folder: ", core::quote(path), "; correct the path");
}

// One rank's file of a checkpoint would be taken for a model whose config.json is missing.
void check_is_model(const TrainConfig& config) {
  const std::string& from = config.model.from;
  const std::filesystem::path folder(from);
  std::error_code error;
  const auto has = [&](const char* name) { return std::filesystem::exists(folder / name, error); };
  if (!std::filesystem::is_directory(folder, error) || has("config.json")) return;
  const bool is_checkpoint = has(kManifestName) && has("rank-00000.safetensors");
  check<ConfigError>(!is_checkpoint && !find_latest(from), config.where("model.from"), ": ",
                     core::quote(from),
                     " is a run or a checkpoint of one, expected a Hugging Face folder or a .gguf; "
                     "name what weft convert makes of it, or weft fuse of adapters");
}

void check_data_files(const TrainConfig& config, const char* name,
                      const std::vector<std::string>& paths) {
  for (const std::string& path : paths) check_exists(config, name, path);
  const std::string where = config.where(name);
  if (!paths.empty()) check_sources(list_sources(paths, where), where);
}

void check_new_model(const TrainConfig& config) {
  const ModelSection& model = config.model;
  check_required(config, "model.hidden_size", model.hidden_size);
  check_required(config, "model.num_layers", model.num_layers);
  check_required(config, "model.num_heads", model.num_heads);
  check<ConfigError>(model.head_dim > 0 || model.hidden_size % model.num_heads == 0,
                     config.where("model.num_heads"), ": expected a divisor of model.hidden_size ",
                     model.hidden_size, ", got ", model.num_heads,
                     "; change one of them or give model.head_dim");
  check<ConfigError>(model.num_kv_heads == 0 || model.num_heads % model.num_kv_heads == 0,
                     config.where("model.num_kv_heads"), ": expected a divisor of model.num_heads ",
                     model.num_heads, ", got ", model.num_kv_heads, "; ",
                     divisors_text(model.num_heads), " would work");
  const int64_t head_dim =
      model.head_dim > 0 ? model.head_dim : model.hidden_size / model.num_heads;
  check<ConfigError>(head_dim % 2 == 0, config.where("model.head_dim"),
                     ": expected an even number, since rope turns pairs, got ", head_dim,
                     "; change model.head_dim or model.num_heads");
  check<ConfigError>(
      model.max_positions == 0 || model.max_positions >= config.batch.sequence_length,
      config.where("batch.sequence_length"), ": expected at most model.max_positions ",
      model.max_positions, ", got ", config.batch.sequence_length, "; raise model.max_positions");
}

}  // namespace

void complete_model(TrainConfig& config) {
  ModelSection& model = config.model;
  if (!model.from.empty()) {
    for (const OwnKey& key : kOwnKeys) {
      check<ConfigError>(!config.is_given(key.name), config.where(key.name),
                         ": expected none beside model.from ", core::quote(model.from),
                         ", which has ", key.what, " of its own; give one of the two");
    }
    return;
  }
  check_new_model(config);
  if (model.num_kv_heads == 0) model.num_kv_heads = model.num_heads;
  if (model.head_dim == 0) model.head_dim = model.hidden_size / model.num_heads;
  if (model.intermediate_size == 0) {
    const int64_t width = model.hidden_size * 8 / 3;
    model.intermediate_size = (width + kFfnMultiple - 1) / kFfnMultiple * kFfnMultiple;
  }
  if (model.max_positions == 0) model.max_positions = config.batch.sequence_length;
}

void check_config(const TrainConfig& config) {
  check_batch(config);
  check_schedule(config);
  check_optimizer(config);
  check_data(config);
  check_dropout(config);
  check_exact(config);
  TrainConfig completed = config;
  complete_model(completed);
  if (!config.model.from.empty()) return;
  const ModelSection& model = completed.model;
  check_model_fits(config,
                   {model.num_layers, model.num_heads, model.vocab_size, model.intermediate_size});
}

void check_inputs(const TrainConfig& config) {
  check<ConfigError>(!config.checkpoint.folder.empty(), config.where("checkpoint.folder"),
                     ": is required: the folder that the run is kept in; write it in the file");
  check<ConfigError>(!config.data.train.empty(), config.where("data.train"),
                     ": is required: text or JSONL files to train on; write it in the file");
  check_data_files(config, "data.train", config.data.train);
  check_data_files(config, "data.eval", config.data.eval);
  check_exists(config, "model.from", config.model.from);
  check_is_model(config);
  check_exists(config, "model.tokenizer", config.model.tokenizer);
}

void check_world(const TrainConfig& config, int64_t world_size) {
  const MeshSection& mesh = config.mesh;
  const int64_t ranks = mesh.num_ranks();
  if (ranks == world_size) return;
  const std::pair<const char*, int64_t> axes[] = {{"mesh.dp", mesh.dp},
                                                  {"mesh.replicas", mesh.replicas},
                                                  {"mesh.tp", mesh.tp},
                                                  {"mesh.pipe", mesh.pipe}};
  std::string advice;
  for (const auto& [name, size] : axes) {
    const int64_t others = ranks / size;
    if (world_size % others != 0) continue;
    advice += core::join(advice.empty() ? "" : " or ", name, " = ", world_size / others);
  }
  if (advice.empty()) advice = core::join("sizes whose product is ", world_size);
  core::fail<ConfigError>("mesh: replicas ", mesh.replicas, " x dp ", mesh.dp, " x pipe ",
                          mesh.pipe, " x tp ", mesh.tp, " are ", ranks, " ranks, expected the ",
                          world_size, " that were started; ", advice, " would work");
}

void check_model_fits(const TrainConfig& config, const MeshFit& model) {
  const std::pair<const char*, int64_t> cut[] = {
      {"model.num_heads", model.num_heads},
      {"model.intermediate_size", model.intermediate_size},
      {"model.vocab_size", model.vocab_size}};
  for (const auto& [name, size] : cut) {
    check<ConfigError>(size == 0 || config.mesh.tp <= size, config.where("mesh.tp"),
                       ": expected at most ", name, " ", size, ", got ", config.mesh.tp,
                       "; use fewer model ranks and more data ranks (mesh.dp)");
  }
  check<ConfigError>(config.mesh.pipe <= model.num_layers, config.where("mesh.pipe"),
                     ": expected at most model.num_layers ", model.num_layers, ", got ",
                     config.mesh.pipe, "; a stage needs a layer");
  if (config.mesh.pipe_layers.empty()) return;
  check_stage_layers(config.mesh.pipe_layers, config.mesh.pipe, model.num_layers,
                     config.where("mesh.pipe_layers"));
}

BatchPlan plan_batch(const TrainConfig& config) {
  BatchPlan plan;
  plan.sequences_per_rank = config.batch.sequences / config.mesh.num_data_ranks();
  plan.microbatch = config.batch.microbatch > 0 ? config.batch.microbatch : plan.sequences_per_rank;
  plan.num_microbatches = plan.sequences_per_rank / plan.microbatch;
  return plan;
}

}  // namespace weft::train
