#include "weft/train/trainer/run_checkpoint.h"

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/models/config/config.h"
#include "weft/train/checkpoint/folder.h"
#include "weft/train/checkpoint/load.h"
#include "weft/train/config/config_json.h"

namespace weft::train {
namespace {

using core::check;
using core::ConfigError;

CheckpointOptions options_of(const CheckpointSection& section) {
  CheckpointOptions options;
  options.keep = section.keep == 0 ? std::numeric_limits<int64_t>::max() : section.keep;
  options.in_background = section.is_async;
  return options;
}

std::string describe(const Trainer& trainer) {
  const Progress& progress = trainer.progress();
  return core::dump_json({{"step", progress.step},
                          {"samples", progress.samples},
                          {"tokens", progress.tokens},
                          {"data", trainer.data().identity()},
                          {"adapters", trainer.trained_part() == TrainedPart::kAdapters},
                          {"model", models::config_json(trainer.model().config())},
                          {"tokenizer", std::filesystem::absolute(trainer.tokenizer_path())},
                          {"config", config_to_json(trainer.config())}});
}

int64_t whole_number(const core::Json& json, const char* key, const std::string& where) {
  const auto found = json.find(key);
  check<core::FormatError>(found != json.end() && found->is_number_integer(), where, ": trainer.",
                           key, ": expected a whole number");
  return found->get<int64_t>();
}

}  // namespace

void check_run_folder(const TrainConfig& config, bool resumes) {
  const auto newest = find_latest(config.checkpoint.folder);
  check<ConfigError>(resumes || !newest.has_value(), config.where("checkpoint.folder"), ": ",
                     core::quote(newest.value_or("")),
                     " is there already; go on from it with --resume, or name another folder");
  check<ConfigError>(!resumes || newest.has_value(),
                     "--resume: ", core::quote(config.checkpoint.folder),
                     " has no complete checkpoint; leave --resume out to begin");
}

RunCheckpoints::RunCheckpoints(Trainer& trainer)
    : trainer_(trainer),
      writer_(trainer.config().checkpoint.folder, options_of(trainer.config().checkpoint),
              trainer.sharded().groups().all) {}

void RunCheckpoints::save() {
  CheckpointContent content;
  content.step = trainer_.progress().step;
  content.tensors = trainer_.optimizer().state();
  content.trainer = describe(trainer_);
  writer_.begin(content);
  if (!trainer_.config().checkpoint.is_async) writer_.finish();
}

void RunCheckpoints::load_newest() {
  const auto folder = find_latest(trainer_.config().checkpoint.folder);
  check<ConfigError>(folder.has_value(),
                     "--resume: ", core::quote(trainer_.config().checkpoint.folder),
                     " has no complete checkpoint; leave --resume out to begin");
  const LoadedCheckpoint loaded =
      load_checkpoint(*folder, trainer_.optimizer().state(), true, trainer_.sharded().groups().all);
  const core::Json json = core::parse_json(loaded.trainer, *folder);
  const auto identity = json.find("data");
  const bool is_same = identity != json.end() && identity->is_number_integer() &&
                       identity->get<uint64_t>() == trainer_.data().identity();
  check<ConfigError>(is_same, *folder,
                     ": was trained on other data than data.train has now; train "
                     "on the same files with the same tokenizer, or begin a new run from it");
  trainer_.resume({whole_number(json, "step", *folder), whole_number(json, "samples", *folder),
                   whole_number(json, "tokens", *folder)});
}

}  // namespace weft::train
