// What the launcher does when the ranks are MPI's.
#include "weft/dist/launch/mpi_places.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "tests/support/backends.h"
#include "tests/support/run_command.h"
#include "weft/core/error.h"
#include "weft/dist/launch/launch.h"

namespace weft::dist {
namespace {

using test::CommandResult;

class MpiPlacesTest : public ::testing::Test {
 protected:
  void SetUp() override { test::skip_or_fail_without("mpi"); }
};

LaunchOptions mpi_shell(int ranks, const std::string& script) {
  LaunchOptions options;
  options.num_ranks = ranks;
  options.backend = "mpi";
  options.command = {"sh", "-c", script};
  return options;
}

CommandResult run_mpi_launch(const LaunchOptions& options) {
  return test::run_forked([&] { return launch(options); });
}

TEST_F(MpiPlacesTest, GivesEveryRankItsOwnPlace) {
  const CommandResult result = run_mpi_launch(
      mpi_shell(3, "test ${OMPI_COMM_WORLD_RANK:-$PMI_ID} = $WEFT_RANK && echo mine"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 3) << result.out;
  EXPECT_EQ(result.err, "");
}

TEST_F(MpiPlacesTest, KeepsTheExitStatusAndMpirunsBannersToItself) {
  const CommandResult alike = run_mpi_launch(mpi_shell(2, "exit 3"));
  EXPECT_EQ(alike.status, 3);
  EXPECT_EQ(alike.err, "");
  const CommandResult killed =
      run_mpi_launch(mpi_shell(2, "test $RANK = 1 && kill -KILL $$; exec sleep 300"));
  EXPECT_EQ(killed.status, 4);
  EXPECT_EQ(killed.err.rfind("weft launch: CommError: rank 1 (pid ", 0), 0U) << killed.err;
  EXPECT_EQ(std::count(killed.err.begin(), killed.err.end(), '\n'), 1) << killed.err;
}

// The processes that `pid` has started.
std::vector<int> children_of(int pid) {
  std::ifstream file(core::join("/proc/", pid, "/task/", pid, "/children"));
  return {std::istream_iterator<int>(file), std::istream_iterator<int>()};
}

// A process that ended and that nobody has asked for is no longer running.
bool is_running(int pid) {
  std::ifstream file(core::join("/proc/", pid, "/stat"));
  std::string text;
  if (!std::getline(file, text)) return false;
  return text.substr(text.rfind(')') + 2, 1) != "Z";
}

TEST_F(MpiPlacesTest, LeavesNothingBehindWhenTheLauncherIsKilled) {
  test::BackgroundCommand command([] { return launch(mpi_shell(2, "echo here; exec sleep 300")); });
  EXPECT_TRUE(command.wait_for_output("[0] here"));
  EXPECT_TRUE(command.wait_for_output("[1] here"));
  const std::vector<int> children = children_of(command.pid());
  EXPECT_EQ(children.size(), 3U);  // mpirun and two ranks
  command.signal(SIGKILL);
  EXPECT_EQ(command.finish().status, 128 + SIGKILL);
  for (const int child : children) {
    for (int i = 0; i < 3000 && is_running(child); ++i) usleep(10'000);
    EXPECT_FALSE(is_running(child)) << child;
  }
}

TEST_F(MpiPlacesTest, SaysThatThereIsNoMpirun) {
  setenv("WEFT_MPIRUN", "/no/such/mpirun", 1);
  try {
    launch(mpi_shell(2, "true"));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const core::IoError& error) {
    EXPECT_EQ(std::string(error.what())
                  .rfind("weft launch: backend mpi: expected /no/such/mpirun to start the ranks, "
                         "got nothing there; install ",
                         0),
              0U)
        << error.what();
  }
  setenv("WEFT_MPIRUN", "/bin/false", 1);
  try {
    launch(mpi_shell(2, "true"));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const core::IoError& error) {
    EXPECT_STREQ(error.what(),
                 "weft launch: backend mpi: /bin/false did not start 2 ranks: it said nothing");
  }
  unsetenv("WEFT_MPIRUN");
}

}  // namespace
}  // namespace weft::dist
