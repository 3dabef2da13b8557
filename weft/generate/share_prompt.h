#pragma once

#include <cstdint>
#include <vector>

#include "weft/dist/group.h"

namespace weft::generate {

/// Rank 0's tokens on all ranks of the group; what the others pass is ignored. Collective.
std::vector<int64_t> share_tokens(const dist::Group& group, const std::vector<int64_t>& tokens);

}  // namespace weft::generate
