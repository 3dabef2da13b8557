// What happens in the middle of an answer: ranks that die, readers that go, disks that are full.
#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/processes.h"
#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"

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

TEST_F(RunningAnswer, EndsAtAnInterruptOfOneRank) {
  ::kill(ranks_.at("1"), SIGINT);
  const CommandResult result = command_.finish();
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_EQ(result.err, "");
  expect_no_rank_left();
}

// What was cut short has no speed.
TEST(Bench, ShowsNothingOnceItIsInterrupted) {
  for (const std::string tp : {"1", "2"}) {
    BackgroundCommand command(
        weft_command({"bench", "-p", "64", "-n", "64", "-b", "2", "-r", "1000", "--tp", tp}),
        with_model());
    int pid = command.pid();
    if (tp == "2") {
      for (int i = 0; i < 1000 && ranks_of(pid).size() < 2; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      pid = ranks_of(pid).at("1");
    }
    ASSERT_TRUE(handles_soon(pid, SIGINT)) << command.finish().err;
    std::this_thread::sleep_for(std::chrono::seconds(2));
    ::kill(pid, SIGINT);
    const CommandResult result = command.finish();
    EXPECT_EQ(result.status, 130) << result.err;
    EXPECT_EQ(result.out + result.err, "");
  }
}

// As nohup starts it.
TEST(Launch, GoesOnAfterAHangupThatIsIgnored) {
  BackgroundCommand command({"bash", "-c",
                             std::string("trap '' HUP; exec ") + kWeft +
                                 " launch -n 2 -- sh -c 'echo on; read x; sleep 1'"});
  ASSERT_TRUE(command.wait_for_output("[0] on"));
  ASSERT_TRUE(command.wait_for_output("[1] on"));
  ::kill(-command.pid(), SIGHUP);
  const CommandResult result = command.finish();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
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

// Files that the program opens would get the number of a stream that is closed.
TEST(Output, ThatIsClosedIsRefused) {
  for (const std::string verb :
       {"generate -p x -n 1", "tokenize -p x", "inspect", "chat --help", "help", "version",
        "bench -r 1 -p 8 -n 2", "launch -n 1 -- echo x", "doctor"}) {
    const CommandResult result = shell("$weft " + verb + " >&- <&-");
    EXPECT_EQ(result.status, 5) << verb;
    EXPECT_EQ(result.out, "") << verb;
    EXPECT_EQ(result.err, "weft: IoError: stdout: cannot write: Bad file descriptor\n") << verb;
  }
}

TEST(Output, ThatIsNotWrittenNeedsNoStream) {
  const testing::TempDir dir;
  const std::string out = dir.at("logits");
  const CommandResult closed =
      shell("$weft logits --tokens 1,2 --tp 2 -o " + out + " <&- >&- 2>&-");
  EXPECT_EQ(closed.status, 0);
  EXPECT_EQ(shell("$weft logits --tokens 1,2 --tp 2 -o " + out + "2").status, 0);
  EXPECT_EQ(dir.read("logits"), dir.read("logits2"));
  EXPECT_EQ(shell("$weft chat -p - >&- <&-").status, 5);
}

TEST(Output, OfLaunchedProgramsIsRefusedByAFullDevice) {
  const CommandResult result = shell("$weft launch -n 2 -- yes > /dev/full");
  EXPECT_EQ(result.status, 5) << result.err;
  EXPECT_EQ(result.err, "weft: IoError: stdout: cannot write: No space left on device\n");
}

TEST(Output, OfTwoRanksIsRefusedByAFullDevice) {
  const CommandResult result = shell("$weft generate -p x -n 4 --tp 2 > /dev/full");
  EXPECT_EQ(result.status, 5) << result.err;
  EXPECT_EQ(result.err, "[0] weft: IoError: stdout: cannot write: No space left on device\n");
}

}  // namespace
}  // namespace weft::cli
