#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "weft/dist/world.h"

namespace weft::test {

struct RunOptions {
  std::string backend = "auto";
  /// All ranks are killed and the test fails when they take longer.
  std::chrono::milliseconds timeout{120'000};
  /// Further variables for the ranks. WEFT_CHECK_COLLECTIVES is 1 unless it stands here.
  std::vector<std::pair<std::string, std::string>> variables = {};
};

/// Runs `body` on `n` real processes: n copies of this test program, as it was before main did
/// anything, run only the current test, where the same call runs `body` and does nothing else. (For
/// nccl the program is started n times instead.) Every failed expectation and every exception in a
/// rank fails the test, with the ranks' output. Code of the test around the call runs in the ranks
/// too. May be called several times in a test; n = 1 runs here, in a world of one. If the ranks
/// come from a launcher of another kind (mpirun), `body` runs when n is their number. torch's
/// generator begins with one seed on all ranks.
void run_ranks(int n, const std::function<void(dist::World&)>& body,
               const RunOptions& options = {});

/// True in a process that run_ranks or a launcher has started: expectations about a whole run
/// belong elsewhere.
bool is_rank();

}  // namespace weft::test
