#include "weft/dist/launch/remote_launch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "tests/support/run_command.h"

namespace weft::dist {
namespace {

// One host, which is this one.
RemoteLaunch here(const std::string& script) { return {{{"sh", "-c", script}}, "the key", {0}}; }

TEST(RemoteLaunchProgram, DISABLED_Copies) { std::exit(launch_remotely(here("exec cat"))); }

TEST(RemoteLaunch, TheFirstHostWaitsForWhatIsTypedLate) {
  const auto result = test::run_command(
      {"sh", "-c",
       "(sleep 0.5; echo typed late) | \"$0\" --gtest_also_run_disabled_tests --gtest_brief=1 "
       "--gtest_filter=RemoteLaunchProgram.DISABLED_Copies",
       "/proc/" + std::to_string(getpid()) + "/exe"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("the key\ntyped late\n"), std::string::npos) << result.out;
}

// More than a pipe holds.
TEST(RemoteLaunch, ASignalEndsAJobThatDoesNotReadItsInput) {
  test::BackgroundCommand command(
      [] { return launch_remotely(here("echo it runs >&2; exec sleep 300")); },
      {.input = std::string(1 << 20, 'y'), .timeout = std::chrono::seconds(30)});
  ASSERT_TRUE(command.wait_for_output("it runs"));
  command.signal(SIGTERM);
  const auto result = command.finish();
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, 128 + SIGTERM);
}

// As much as many pipes hold arrives whole, and the last of it before the end.
TEST(RemoteLaunch, TheFirstHostGetsAllOfALongInput) {
  const auto result = test::run_forked([] { return launch_remotely(here("exec wc -c")); },
                                       {.input = std::string(1 << 20, 'y')});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, std::to_string((1 << 20) + std::string("the key\n").size()) + "\n");
}

}  // namespace
}  // namespace weft::dist
