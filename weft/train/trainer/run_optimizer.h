#pragma once

#include <memory>

#include "weft/train/config/train_config.h"
#include "weft/train/optimizer/optimizer.h"
#include "weft/train/psdp/sharded_module.h"
#include "weft/train/schedule.h"

namespace weft::train {

/// The optimizer of [optimizer] for what this rank owns. Matrices lose weight, vectors and what
/// no_decay names do not. Collective over the mesh for optimizers that look at wholes.
std::unique_ptr<Optimizer> make_run_optimizer(const TrainConfig& config,
                                              const ShardedModule& sharded);

/// The schedule of [schedule] over the run's steps. Throws ConfigError.
Schedule run_schedule(const TrainConfig& config);

}  // namespace weft::train
