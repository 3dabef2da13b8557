#include "weft/dist/launch/remote_launch.h"

#include <gtest/gtest.h>
#include <unistd.h>

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

}  // namespace
}  // namespace weft::dist
