#include "weft/train/trainer/run_checkpoint.h"

#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/dist/launch/run_together.h"
#include "weft/models/config/config.h"
#include "weft/train/checkpoint/folder.h"
#include "weft/train/checkpoint/load.h"
#include "weft/train/checkpoint/manifest.h"
#include "weft/train/config/config_json.h"
#include "weft/train/gather_texts.h"

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

std::vector<std::string> RunCheckpoints::load(const RunStart& start) {
  const dist::Group& all = trainer_.sharded().groups().all;
  std::string found;
  dist::run_together(all, [&] {
    if (all.rank() == 0) found = find_start(trainer_.config(), start).value_or("");
  });
  const std::string folder = gather_texts(all, found)[0];
  if (folder.empty()) return {};
  std::vector<std::string> lines = load_from(folder);
  for (const std::string& name : set_aside_newer()) {
    lines.push_back(core::join("a newer checkpoint is kept as ", name));
  }
  return lines;
}

std::vector<std::string> RunCheckpoints::load_from(const std::string& folder) {
  const dist::Group& all = trainer_.sharded().groups().all;
  std::vector<std::string> lines;
  Progress progress;
  // What can't go on is refused before all of the checkpoint is read.
  dist::run_together(all, [&] {
    const Manifest manifest = read_manifest(folder);
    const core::Json json = core::parse_json(manifest.trainer, folder);
    const auto identity = json.find("data");
    const bool is_same = identity != json.end() && identity->is_number_integer() &&
                         identity->get<uint64_t>() == trainer_.data().identity();
    check<ConfigError>(is_same, folder,
                       ": was trained on other data than data.train has now; train "
                       "on the same files with the same tokenizer, or begin a new run from what "
                       "weft convert makes of it");
    progress = {whole_number(json, "step", folder), whole_number(json, "samples", folder),
                whole_number(json, "tokens", folder)};
    const std::string& run = trainer_.config().checkpoint.folder;
    const bool is_its_step =
        progress.step == manifest.step && checkpoint_path(run, manifest.step) == folder;
    check<core::FormatError>(is_its_step, folder, ": holds step ", manifest.step,
                             " of the weights and ", progress.step,
                             " of the run; take another checkpoint");
    lines = changed_fields(core::require(json, "config", folder), trainer_.config(), folder);
  });
  load_checkpoint(folder, trainer_.optimizer().state(), true, all);
  trainer_.resume(progress);
  return lines;
}

std::vector<std::string> RunCheckpoints::set_aside_newer() {
  const dist::Group& all = trainer_.sharded().groups().all;
  std::vector<std::string> names;
  dist::run_together(all, [&] {
    if (all.rank() != 0) return;
    names = train::set_aside_newer(trainer_.config().checkpoint.folder, trainer_.progress().step);
  });
  return names;
}

}  // namespace weft::train
