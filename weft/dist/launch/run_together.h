#pragma once

#include <functional>

#include "weft/dist/group.h"

namespace weft::dist {

/// Runs `work`, which has no collectives in it, on every rank and waits for all. If it throws on
/// some rank, all ranks throw the error of the first such rank, of the same type: none waits for
/// one that has failed. Collective over `group`.
void run_together(const Group& group, const std::function<void()>& work);

}  // namespace weft::dist
