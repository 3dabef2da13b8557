// What happens in the middle of an answer: ranks that die, readers that go, disks that are full.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/processes.h"
#include "tests/cli/weft_command.h"

namespace weft::cli {
namespace {

using test::BackgroundCommand;
using test::CommandResult;

// Goes on for minutes; "lazy dog" comes first.
const std::vector<std::string> kLongAnswer = {"generate", "-p",   "The quick brown fox jumps over",
                                              "-n",       "3000", "--ignore-eos"};

CommandResult shell(const std::string& script) {
  return test::run_command({"bash", "-c", std::string("weft=") + kWeft + "; " + script},
                           with_model());
}

// A long answer over two ranks that has begun.
class RunningAnswer : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(command_.wait_for_output("lazy dog")) << command_.finish().err;
    ranks_ = ranks_of(command_.pid());
    ASSERT_EQ(ranks_.size(), 2U);
  }

  void expect_no_rank_left() {
    for (const auto& [rank, pid] : ranks_) EXPECT_TRUE(ends_soon(pid)) << "rank " << rank;
  }

  void expect_named_when_killed(const std::string& rank) {
    ::kill(ranks_.at(rank), SIGKILL);
    const CommandResult result = command_.finish();
    EXPECT_EQ(result.status, 4) << result.err;
    EXPECT_EQ(num_lines(result.err), 1) << result.err;
    std::istringstream lines(result.err);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_NE(line.find("CommError: "), std::string::npos) << line;
      EXPECT_NE(line.find("rank " + rank + " (pid " + std::to_string(ranks_.at(rank))),
                std::string::npos)
          << line;
    }
    expect_no_rank_left();
  }

  BackgroundCommand command_{weft_command(joined(kLongAnswer, {"--tp", "2"})), with_model()};
  std::map<std::string, int> ranks_;
};

TEST_F(RunningAnswer, NamesARankThatIsKilled) { expect_named_when_killed("1"); }

TEST_F(RunningAnswer, NamesTheFirstRankWhenItIsKilled) { expect_named_when_killed("0"); }

TEST_F(RunningAnswer, LeavesNoRankWhenTheLauncherIsKilled) {
  command_.signal(SIGKILL);
  EXPECT_EQ(command_.finish().status, 128 + SIGKILL);
  expect_no_rank_left();
}

TEST_F(RunningAnswer, EndsAtAnInterruptOfTheWholeGroup) {
  ::kill(-command_.pid(), SIGINT);
  const CommandResult result = command_.finish();
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_EQ(result.err, "");
  expect_no_rank_left();
}

TEST(Output, EndsQuietlyWhenItsReaderGoes) {
  for (const std::string tp : {"1", "2"}) {
    const CommandResult result =
        shell("$weft generate -p 'The quick brown fox jumps over' -n 3000 --ignore-eos --tp " + tp +
              " | head -c 10; echo \"|${PIPESTATUS[0]}\"");
    EXPECT_EQ(result.out, " a lazy do|0\n");
    EXPECT_EQ(result.err, "");
    EXPECT_FALSE(result.timed_out);
  }
}

TEST(Output, IsRefusedByAFullDevice) {
  for (const std::string verb : {"generate -p x -n 4", "generate -p x -n 1 --json",
                                 "chat -p x -n 4", "tokenize -p x", "inspect"}) {
    const CommandResult result = shell("$weft " + verb + " > /dev/full");
    EXPECT_EQ(result.status, 5) << verb;
    EXPECT_EQ(result.err, "weft: IoError: stdout: cannot write: No space left on device\n") << verb;
  }
}

TEST(Output, OfTwoRanksIsRefusedByAFullDevice) {
  const CommandResult result = shell("$weft generate -p x -n 4 --tp 2 > /dev/full");
  EXPECT_EQ(result.status, 5) << result.err;
  EXPECT_EQ(result.err, "[0] weft: IoError: stdout: cannot write: No space left on device\n");
}

}  // namespace
}  // namespace weft::cli
