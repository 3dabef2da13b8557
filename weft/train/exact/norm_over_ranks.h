#pragma once

#include <span>
#include <vector>

#include "weft/dist/group.h"

namespace weft::train {

/// The norm of what all ranks' runs hold together, with the same bits however the numbers are
/// shared (ExactSquares), by several threads; infinity if one is not finite. Collective over `all`.
double exact_norm(const std::vector<std::span<const float>>& runs, const dist::Group& all);

}  // namespace weft::train
