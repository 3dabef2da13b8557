#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/run_command.h"
#include "weft/dist/launch/launch.h"

namespace weft::test {

/// What the ranks do: the program's main, with arguments.
using RankProgram = std::function<int(std::vector<std::string> arguments)>;

/// Begins the process that ranks are copied from. It has the libraries loaded but has done nothing
/// yet, so that a rank starts as a new process would, without the third of a second for libtorch.
/// Call before main does anything else.
void start_rank_origin(const RankProgram& program);

/// Runs `job.command`, which is this program with arguments, on a job's ranks, with the variables
/// of this process's environment but for the test framework's. What the options say holds for the
/// whole job. Throws InternalError if the origin has ended.
CommandResult run_from_origin(const dist::LaunchOptions& job, const CommandOptions& options);

}  // namespace weft::test
