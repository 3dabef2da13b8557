// The program on two hosts, which are two network namespaces.
#include "tests/support/two_hosts.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <optional>
#include <regex>

#include "tests/cli/processes.h"
#include "tests/cli/weft_command.h"

namespace weft::cli {
namespace {

using test::BackgroundCommand;
using test::CommandResult;
using Strings = std::vector<std::string>;

class OnTwoHosts : public testing::Test {
 protected:
  void SetUp() override {
    hosts_.emplace();
    if (!hosts_->problem().empty()) GTEST_SKIP() << hosts_->problem();
  }

  // Two ranks of `weft ARGS…` on this host, beside two on the other.
  Strings half(int host, const Strings& args) const {
    const Strings launch = joined(weft_command({"launch", "-n", "2"}), hosts_->launch_flags(host));
    return hosts_->on(host, joined(joined(launch, {"--"}), weft_command(args)));
  }

 private:
  std::optional<test::TwoHosts> hosts_;
};

TEST_F(OnTwoHosts, TheModelAnswersAsOnOneRank) {
  const Strings args = {"generate", "-p", "The quick brown fox jumps over", "-n", "8"};
  BackgroundCommand right(half(1, args), with_model());
  BackgroundCommand left(half(0, args), with_model());
  const CommandResult of_left = left.finish();
  const CommandResult of_right = right.finish();
  EXPECT_EQ(of_left.status, 0) << of_left.err;
  EXPECT_EQ(of_right.status, 0) << of_right.err;
  EXPECT_EQ(of_right.out, "");
  const CommandResult alone = weft(joined(args, {"--tp", "1"}));
  EXPECT_EQ(std::regex_replace(of_left.out, std::regex("(^|\n)\\[0\\] "), "$1"), alone.out);
}

TEST_F(OnTwoHosts, AKilledRankEndsBothWithTheSameLine) {
  const Strings args = {"generate", "-p", "The quick brown fox jumps over", "-n", "100000"};
  BackgroundCommand right(half(1, args), with_model());
  BackgroundCommand left(half(0, args), with_model());
  EXPECT_TRUE(left.wait_for_output("[0]  a lazy dog"));
  kill(ranks_of(right.pid()).at("3"), SIGKILL);
  const CommandResult of_left = left.finish();
  const CommandResult of_right = right.finish();
  EXPECT_EQ(of_left.status, 4);
  EXPECT_EQ(of_right.status, 4);
  EXPECT_FALSE(of_left.timed_out || of_right.timed_out);
  EXPECT_TRUE(std::regex_match(
      of_right.err, std::regex("weft launch: CommError: rank 3 \\(pid [0-9]+, host right\\) was "
                               "killed by SIGKILL .+; the other ranks were ended\n")))
      << of_right.err;
  EXPECT_EQ(of_left.err, of_right.err);
}

TEST_F(OnTwoHosts, TheErrorOfOneHostIsTheJobs) {
  BackgroundCommand right(half(1, {"generate", "no-such-model.gguf", "-p", "Hello"}), with_model());
  BackgroundCommand left(half(0, {"generate", "-p", "Hello", "-n", "8"}), with_model());
  const CommandResult of_left = left.finish();
  EXPECT_EQ(of_left.status, right.finish().status);
  EXPECT_NE(of_left.err.find("no-such-model.gguf"), std::string::npos) << of_left.err;
}

TEST_F(OnTwoHosts, AHostThatFailedTellsOneThatComesLater) {
  for (const int late : {0, 1}) {
    BackgroundCommand early(half(1 - late, {"generate", "-p", "Hello", "-n", "-5"}), with_model());
    EXPECT_TRUE(early.wait_for_output("-5"));
    BackgroundCommand other(half(late, {"generate", "-p", "Hello", "-n", "8"}), with_model());
    const CommandResult of_other = other.finish();
    EXPECT_EQ(of_other.status, 2);
    EXPECT_NE(of_other.err.find("-5"), std::string::npos) << of_other.err;
    EXPECT_EQ(early.finish().status, 2);
  }
}

}  // namespace
}  // namespace weft::cli
