#include "weft/train/trainer/run_start.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "weft/core/error.h"
#include "weft/dist/launch/process.h"
#include "weft/train/checkpoint/folder.h"
#include "weft/train/config/config_json.h"

namespace weft::train {
namespace {

using core::check;
using core::ConfigError;
using core::quote;

// A run's position in the data counts samples, whose order and contents follow from these; another
// share kept for evaluation would also evaluate with what was trained on. Another optimizer has
// another state.
constexpr std::array<std::string_view, 5> kFixedFields = {
    "optimizer.name", "train.seed", "batch.sequence_length", "data.pack", "data.eval_fraction"};

// How a run is computed and watched, whatever it learns.
constexpr std::array<std::string_view, 3> kFreeSections = {"mesh", "log", "checkpoint"};
constexpr std::array<std::string_view, 5> kFreeFields = {
    "batch.microbatch", "train.checkpoint_activations", "train.sequence_parallel", "train.threads",
    "data.cache"};

template <size_t N>
bool has(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string steps_text(const std::vector<int64_t>& steps) {
  std::string text;
  for (const int64_t step : steps) text += core::join(text.empty() ? "" : ", ", step);
  return text.empty() ? "none" : text;
}

}  // namespace

RunStart parse_run_start(const std::string& text, const std::string& where) {
  if (text == "newest" || text == "true") return {RunStart::Kind::kNewest, 0};
  if (text == "auto") return {RunStart::Kind::kNewestOrNew, 0};
  int64_t step = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, step);
  check<ConfigError>(result.ec == std::errc() && result.ptr == end && step > 0, where,
                     ": expected newest, auto or the step of a checkpoint, got ", quote(text));
  return {RunStart::Kind::kStep, step};
}

std::optional<std::string> find_start(const TrainConfig& config, const RunStart& start) {
  const std::string& run = config.checkpoint.folder;
  const std::vector<int64_t> steps = list_checkpoints(run);
  switch (start.kind) {
    case RunStart::Kind::kNew:
      check<ConfigError>(steps.empty(), config.where("checkpoint.folder"), ": ",
                         quote(steps.empty() ? "" : checkpoint_path(run, steps.back())),
                         " is there already; go on from it with --resume, or name another folder");
      return std::nullopt;
    case RunStart::Kind::kNewest:
      check<ConfigError>(!steps.empty(), "--resume: ", quote(run),
                         " has no complete checkpoint; leave --resume out to begin");
      return checkpoint_path(run, steps.back());
    case RunStart::Kind::kNewestOrNew:
      if (steps.empty()) return std::nullopt;
      return checkpoint_path(run, steps.back());
    case RunStart::Kind::kStep:
      break;
  }
  check<ConfigError>(std::find(steps.begin(), steps.end(), start.step) != steps.end(),
                     "--resume: ", quote(run), " has no complete checkpoint of step ", start.step,
                     "; it has: ", steps_text(steps));
  return checkpoint_path(run, start.step);
}

std::vector<std::string> changed_fields(const core::Json& saved, const TrainConfig& config,
                                        const std::string& folder) {
  std::vector<std::string> changes;
  const core::Json now = config_to_json(config);
  for (const auto& [section, fields] : now.items()) {
    if (has(kFreeSections, section) || !saved.contains(section)) continue;
    for (const auto& [key, value] : fields.items()) {
      const std::string name = section + "." + key;
      const core::Json& before = saved.at(section);
      if (has(kFreeFields, name) || !before.contains(key) || before.at(key) == value) continue;
      const std::string was = core::dump_json(before.at(key));
      check<ConfigError>(!has(kFixedFields, name), config.where(name), ": ", folder, " has ", was,
                         ", got ", core::dump_json(value),
                         "; a run keeps it, begin a new run to change it");
      changes.push_back(core::join(name, ": ", core::dump_json(value), ", was ", was));
    }
  }
  return changes;
}

core::FileLock lock_run(const std::string& run) {
  std::error_code error;
  std::filesystem::create_directories(run, error);
  check<core::IoError>(!error, run, ": cannot make it: ", error.message());
  return {run + "/lock", core::join("process ", ::getpid(), " on host ", dist::host_name())};
}

}  // namespace weft::train
