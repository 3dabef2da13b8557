#pragma once

#include <string>

#include "weft/cli/model/session.h"
#include "weft/cli/options.h"
#include "weft/serve/api/served_model.h"
#include "weft/serve/engine/scheduler.h"
#include "weft/serve/engine/step_runner.h"

namespace weft::cli {

/// What flags and model make of a scheduler, without a prefix cache.
serve::SchedulerOptions scheduler_options(const ServedOptions& options, const Session& session);

/// As many pages as fit into what was asked for. Collective. Throws ConfigError where that is less
/// than one.
serve::PrefixCacheOptions prefix_options(const ServedOptions& options, const Session& session,
                                         const serve::StepRunner& runner);

/// The model as requests see it. `scheduler` must outlive it. Throws FormatError for a tokenizer or
/// template that can't be read.
serve::ServedModel served_model(const ServedOptions& options, const Session& session,
                                serve::Scheduler& scheduler);

}  // namespace weft::cli
