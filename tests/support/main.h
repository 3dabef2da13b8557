#pragma once

#include "weft/dist/world.h"

namespace weft::test {

/// Variable that tells a started rank which call of run_ranks within the test it is to run.
inline constexpr const char* kCallVariable = "WEFT_TEST_CALL";

/// Notes that a body has run. A started rank that runs none fails: it would prove nothing.
void note_body_ran();

/// The world of this process, made at the first call and let go before main returns.
dist::World& shared_world(const dist::WorldOptions& options);

}  // namespace weft::test
