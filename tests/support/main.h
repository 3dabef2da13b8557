#pragma once

#include "weft/dist/world.h"

namespace weft::test {

/// The world of this process, made at the first call and let go before main returns.
dist::World& shared_world(const dist::WorldOptions& options);

}  // namespace weft::test
