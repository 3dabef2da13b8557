#pragma once

#include <cstdint>

#include "weft/dist/group.h"
#include "weft/serve/engine/step_plan.h"

namespace weft::serve {

/// Rank 0's plan on all ranks; what the others pass is ignored. By one broadcast of a fixed size
/// where the plan has at most `usual_parts` parts and copies and `usual_tokens` tokens, else by a
/// second one. Collective.
StepPlan share_plan(const dist::Group& group, const StepPlan& plan, int64_t usual_parts,
                    int64_t usual_tokens);

}  // namespace weft::serve
