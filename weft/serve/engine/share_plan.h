#pragma once

#include <cstdint>

#include "weft/dist/group.h"
#include "weft/serve/engine/step_plan.h"

namespace weft::serve {

/// Rank 0's plan on all ranks, by one broadcast of a fixed size; what the others pass is ignored.
/// No plan has more than `most_parts` parts and `most_tokens` tokens. Collective.
StepPlan share_plan(const dist::Group& group, const StepPlan& plan, int64_t most_parts,
                    int64_t most_tokens);

}  // namespace weft::serve
