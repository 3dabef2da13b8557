#include "weft/train/trainer/run_optimizer.h"

#include <fnmatch.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "weft/core/error.h"

namespace weft::train {
namespace {

bool decays(const OptimizerSection& section, const Slice& slice) {
  const auto matches = [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), slice.name.c_str(), 0) == 0;
  };
  return decays_matrices(slice.name, static_cast<int64_t>(slice.sizes.size())) &&
         std::ranges::none_of(section.no_decay, matches);
}

OptimizerOptions options_of(const OptimizerSection& section) {
  if (section.name == "adamw") return AdamwOptions{section.betas[0], section.betas[1], section.eps};
  if (section.name == "sgd") return SgdOptions{section.momentum};
  if (section.name == "lion") return LionOptions{section.betas[0], section.betas[1]};
  if (section.name == "muon") {
    MuonOptions options;
    options.momentum = section.momentum;
    options.adamw = AdamwOptions{section.betas[0], section.betas[1], section.eps};
    return options;
  }
  core::check<core::InternalError>(section.name == "adafactor", "train: optimizer ", section.name);
  return AdafactorOptions{};
}

ScheduleKind kind_of(const std::string& name) {
  if (name == "constant") return ScheduleKind::kConstant;
  if (name == "linear") return ScheduleKind::kLinear;
  if (name == "cosine") return ScheduleKind::kCosine;
  core::check<core::InternalError>(name == "wsd", "train: schedule ", name);
  return ScheduleKind::kWsd;
}

}  // namespace

std::unique_ptr<Optimizer> make_run_optimizer(const TrainConfig& config,
                                              const ShardedModule& sharded) {
  std::vector<OwnedSlice> slices;
  for (const OwnedPart& part : sharded.owned_parts()) {
    const double decay = decays(config.optimizer, part.slice) ? config.optimizer.weight_decay : 0.0;
    slices.push_back({part.slice, part.master, part.gradient, decay});
  }
  return make_optimizer(options_of(config.optimizer), std::move(slices), sharded.groups().all);
}

Schedule run_schedule(const TrainConfig& config) {
  Schedule schedule;
  schedule.kind = kind_of(config.schedule.name);
  schedule.peak = config.optimizer.lr;
  schedule.warmup_steps = config.schedule.warmup_steps;
  schedule.total_steps = config.train.steps;
  schedule.final_fraction = config.schedule.min_lr;
  schedule.decay_steps = config.schedule.decay_steps;
  if (schedule.kind == ScheduleKind::kWsd && schedule.decay_steps == 0) {
    schedule.decay_steps = config.train.steps / 10;
  }
  check_schedule(schedule);
  return schedule;
}

}  // namespace weft::train
