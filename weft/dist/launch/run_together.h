#pragma once

#include <functional>

#include "weft/dist/group.h"

namespace weft::dist {

/// Runs `work`, which has no collectives in it, on every rank and waits for all. If it throws on
/// some rank, all ranks throw the error of the first such rank, of the same type: none waits for
/// one that has failed. However long it takes on one rank, the others wait: the limit of a
/// collective is for ranks that don't answer. `work` runs on this thread, while another says that
/// it does. Collective over `group`.
void run_together(const Group& group, const std::function<void()>& work);

}  // namespace weft::dist
