// The tests' own tools must be able to fail.
#include "tests/support/run_ranks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <stdexcept>

#include "tests/support/run_command.h"

namespace weft::test {
namespace {

TEST(RunRanksProgram, DISABLED_ExpectsInRankOne) {
  run_ranks(2, [](dist::World& world) { EXPECT_NE(world.rank(), 1) << "as it should be"; });
}

TEST(RunRanksProgram, DISABLED_ThrowsInRankOne) {
  run_ranks(2, [](dist::World& world) {
    if (world.rank() == 1) throw std::runtime_error("thrown on purpose");
  });
}

TEST(RunRanksProgram, DISABLED_Hangs) {
  run_ranks(2, [](dist::World&) { pause(); }, {.timeout = std::chrono::milliseconds(3000)});
}

TEST(RunRanksProgram, DISABLED_ThreeCalls) {
  for (const int n : {2, 1, 2}) {
    run_ranks(n, [&](dist::World& world) { EXPECT_EQ(world.size(), n); });
  }
}

CommandResult run_program(const std::string& name) {
  return run_command({"/proc/" + std::to_string(getpid()) + "/exe",
                      "--gtest_also_run_disabled_tests",
                      "--gtest_filter=RunRanksProgram.DISABLED_" + name});
}

TEST(RunRanks, FailsWhenARankFails) {
  const CommandResult expected = run_program("ExpectsInRankOne");
  EXPECT_EQ(expected.status, 1);
  EXPECT_NE(expected.out.find("as it should be"), std::string::npos) << expected.out;
  const CommandResult thrown = run_program("ThrowsInRankOne");
  EXPECT_EQ(thrown.status, 1);
  EXPECT_NE(thrown.out.find("thrown on purpose"), std::string::npos) << thrown.out;
}

TEST(RunRanks, FailsWhenRanksHang) {
  const CommandResult result = run_program("Hangs");
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.out.find("killed after the time-out"), std::string::npos) << result.out;
}

TEST(RunRanks, RunsEachCallOnItsOwnRanks) { EXPECT_EQ(run_program("ThreeCalls").status, 0); }

TEST(RunCommand, CollectsWhatACommandSays) {
  const CommandResult result = run_command({"sh", "-c", "cat; echo error >&2; echo $X; exit 3"},
                                           {.variables = {{"X", "value"}}, .input = "input\n"});
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "input\nvalue\n");
  EXPECT_EQ(result.err, "error\n");
}

TEST(RunCommand, KillsWhatDoesNotEnd) {
  const CommandResult result =
      run_command({"sh", "-c", "sleep 300 & wait"}, {.timeout = std::chrono::milliseconds(200)});
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.status, 128 + 9);
}

}  // namespace
}  // namespace weft::test
