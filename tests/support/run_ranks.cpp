#include "tests/support/run_ranks.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

#include "tests/support/main.h"
#include "tests/support/rank_origin.h"
#include "weft/core/error.h"

namespace weft::test {
namespace {

// Of torch's generator on every rank: what bodies draw are equal wholes.
constexpr uint64_t kSeed = 1;

std::string current_test() {
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  core::check<core::InternalError>(info != nullptr, "run_ranks: expected to run inside a test");
  return std::string(info->test_suite_name()) + "." + info->name();
}

// Counts the calls within the current test.
int next_call() {
  static std::string test;
  static int calls = 0;
  if (test != current_test()) {
    test = current_test();
    calls = 0;
  }
  return calls++;
}

dist::WorldOptions world_options(const RunOptions& options) {
  dist::WorldOptions result;
  result.backend = options.backend;
  result.timeout = options.timeout;
  return result;
}

void start_ranks(int n, int call, const RunOptions& options) {
  CommandOptions command;
  command.timeout = options.timeout;
  // First, so that a test may say otherwise.
  command.variables = {{"WEFT_CHECK_COLLECTIVES", "1"}};
  command.variables.insert(command.variables.end(), options.variables.begin(),
                           options.variables.end());
  command.variables.emplace_back(kCallVariable, std::to_string(call));
  dist::LaunchOptions job;
  job.num_ranks = n;
  job.backend = options.backend;
  job.command = {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                 "--gtest_output=", "--gtest_filter=" + current_test()};
  const CommandResult result = run_from_origin(job, command);
  if (result.status == 0) return;
  ADD_FAILURE() << n << " ranks, backend " << options.backend
                << (result.timed_out ? ": killed after the time-out" : "") << ": status "
                << result.status << "\n"
                << result.out << result.err;
}

}  // namespace

bool is_rank() {
  return std::getenv(kCallVariable) != nullptr || dist::rank_info_from_env().size > 1;
}

void run_ranks(int n, const std::function<void(dist::World&)>& body, const RunOptions& options) {
  const int call = next_call();
  if (!is_rank()) {
    if (n > 1) return start_ranks(n, call, options);
    dist::World alone = dist::World::from_env(world_options(options));
    at::manual_seed(kSeed);
    return body(alone);
  }
  const char* wanted = std::getenv(kCallVariable);
  if (wanted != nullptr && std::to_string(call) != wanted) return;
  dist::World& world = shared_world(world_options(options));
  if (world.size() != n) return;
  note_body_ran();
  at::manual_seed(kSeed);
  body(world);
}

}  // namespace weft::test
