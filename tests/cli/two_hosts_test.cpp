// The program on two hosts, which are two network namespaces.
#include "tests/support/two_hosts.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <thread>

#include "tests/cli/processes.h"
#include "tests/cli/weft_command.h"

namespace weft::cli {
namespace {

using test::BackgroundCommand;
using test::CommandResult;
using Strings = std::vector<std::string>;

constexpr char kKeyVariable[] = "WEFT_JOB_KEY";

class OnTwoHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv(kKeyVariable, "the key of both hosts", 1);
    hosts_.emplace();
    if (!hosts_->problem().empty()) GTEST_SKIP() << hosts_->problem();
  }

  void TearDown() override { unsetenv(kKeyVariable); }

  // One rank of `weft ARGS…` on the host, as a launcher that is not weft's own starts it.
  Strings rank_alone(int host, const Strings& args) const {
    const std::string rank = std::to_string(host);
    const Strings variables = {"env",
                               "RANK=" + rank,
                               "WORLD_SIZE=2",
                               "LOCAL_RANK=0",
                               "LOCAL_WORLD_SIZE=1",
                               "MASTER_PORT=29512",
                               "MASTER_ADDR=" + test::TwoHosts::address()};
    return hosts_->on(host, joined(variables, weft_command(args)));
  }

  test::TwoHosts& hosts() { return *hosts_; }

  // Ranks of `weft ARGS…` on this host, beside as many on the other.
  Strings half(int host, const Strings& args, const std::string& ranks = "2") const {
    const Strings launch =
        joined(weft_command({"launch", "-n", ranks}), hosts_->launch_flags(host));
    return hosts_->on(host, joined(joined(launch, {"--"}), weft_command(args)));
  }

 private:
  std::optional<test::TwoHosts> hosts_;
};

TEST_F(OnTwoHosts, TheModelAnswersAsOnOneRankAndWarnsOfNoKey) {
  unsetenv(kKeyVariable);
  const Strings args = {"generate", "-p", "The quick brown fox jumps over", "-n", "8"};
  BackgroundCommand right(half(1, args), with_model());
  BackgroundCommand left(half(0, args), with_model());
  const CommandResult of_left = left.finish();
  const CommandResult of_right = right.finish();
  EXPECT_EQ(of_left.status, 0) << of_left.err;
  EXPECT_EQ(of_right.status, 0) << of_right.err;
  EXPECT_EQ(of_left.err,
            "weft: warn: dist.job_key: several hosts without a key: whoever reaches " +
                test::TwoHosts::address() + ":" + std::to_string(test::TwoHosts::port()) +
                " can join or end this job; set WEFT_JOB_KEY or WEFT_JOB_KEY_FILE on all hosts\n");
  EXPECT_EQ(of_right.err, "");
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

TEST_F(OnTwoHosts, AStoppedRankEndsBothWithTheSameLine) {
  const Strings args = {"generate", "-p", "The quick brown fox jumps over", "-n", "100000"};
  BackgroundCommand right(half(1, args, "1"), with_model());
  BackgroundCommand left(half(0, args, "1"), with_model());
  EXPECT_TRUE(left.wait_for_output("[0]  a lazy dog"));
  kill(ranks_of(right.pid()).at("1"), SIGSTOP);
  const CommandResult of_left = left.finish();
  const CommandResult of_right = right.finish();
  EXPECT_EQ(of_left.status, 4);
  EXPECT_EQ(of_right.status, 4);
  EXPECT_TRUE(std::regex_match(
      of_right.err,
      std::regex("weft launch: CommError: rank 1 \\(pid [0-9]+, host right\\) has not answered for "
                 "[0-9]+ s \\(stopped or stuck\\) .+; the other ranks were ended\n")))
      << of_right.err;
  EXPECT_EQ(of_left.err, of_right.err);
}

// One that is stopped and ended by its launcher has last words of its own, which nobody says.
TEST(Launchers, AStoppedRankOfHostsByOneCommandIsToldOnce) {
  const Strings args = {"generate", "-p", "The quick brown fox jumps over", "-n", "100000"};
  BackgroundCommand job(joined(weft_command({"launch", "-n", "1", "--hosts", "127.0.0.1,127.0.0.2",
                                             "--port", free_port(), "--"}),
                               weft_command(args)),
                        with_model());
  ASSERT_TRUE(job.wait_for_output("[0]  a lazy dog"));
  for (const int launcher : children_of(job.pid())) {
    const auto ranks = ranks_of(launcher);
    if (ranks.contains("1")) kill(ranks.at("1"), SIGSTOP);
  }
  const CommandResult result = job.finish();
  EXPECT_EQ(result.status, 4);
  EXPECT_TRUE(std::regex_match(
      result.err,
      std::regex("weft launch: CommError: rank 1 [^\n]+; the other ranks were ended\n")))
      << result.err;
}

TEST_F(OnTwoHosts, TheErrorOfOneHostIsTheJobs) {
  BackgroundCommand right(half(1, {"generate", "no-such-model.gguf", "-p", "Hello", "-n", "8"}),
                          with_model());
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

constexpr char kSilence[] =
    "hosts left and right have not heard from each other for 5 s: one of them is cut off, stopped "
    "or stuck\n";

// Nobody but the ranks themselves looks after them, as under srun, mpirun and torchrun.
TEST_F(OnTwoHosts, RanksWithoutALauncherSayTheSameOfACutWire) {
  const Strings args = {"generate", "-p", "The quick brown fox jumps over", "-n", "100000"};
  BackgroundCommand right(rank_alone(1, args), with_model());
  BackgroundCommand left(rank_alone(0, args), with_model());
  ASSERT_TRUE(left.wait_for_output(" a lazy dog"));
  hosts().cut();
  for (BackgroundCommand* each : {&left, &right}) {
    const CommandResult result = each->finish();
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.status, 4);
    EXPECT_TRUE(result.err.ends_with(kSilence)) << result.err;
  }
}

TEST_F(OnTwoHosts, RanksWithoutALauncherNameOneThatIsKilled) {
  const Strings args = {"generate", "-p", "The quick brown fox jumps over", "-n", "100000"};
  BackgroundCommand right(rank_alone(1, args), with_model());
  BackgroundCommand left(rank_alone(0, args), with_model());
  ASSERT_TRUE(left.wait_for_output(" a lazy dog"));
  kill(right.pid(), SIGKILL);
  const CommandResult of_left = left.finish();
  EXPECT_EQ(of_left.status, 4);
  EXPECT_TRUE(std::regex_search(
      of_left.err,
      std::regex(
          "rank 1 \\(pid [0-9]+, host right\\) was killed or has ended (during|after) .+\n")))
      << of_left.err;
}

TEST_F(OnTwoHosts, LaunchersSayTheSameOfACutWire) {
  const Strings args = {"generate", "-p", "The quick brown fox jumps over", "-n", "100000"};
  BackgroundCommand right(half(1, args), with_model());
  BackgroundCommand left(half(0, args), with_model());
  ASSERT_TRUE(left.wait_for_output("[0]  a lazy dog"));
  hosts().cut();
  const CommandResult of_left = left.finish();
  const CommandResult of_right = right.finish();
  EXPECT_EQ(of_left.status, 4);
  EXPECT_EQ(of_right.status, 4);
  EXPECT_EQ(of_left.err, of_right.err);
  EXPECT_EQ(
      of_left.err,
      "weft launch: CommError: host 0 (left) and host 1 (right) have not heard from each other "
      "for 7 s: one of them is cut off, stopped or has ended; the ranks were ended\n");
}

test::CommandOptions with_limit(const char* name, const char* seconds) {
  auto options = with_model();
  options.variables.emplace_back(name, seconds);
  return options;
}

// Longer than launchers wait otherwise, and shorter than the job was told to be patient.
TEST_F(OnTwoHosts, AWireThatIsMendedInTimeIsNoFault) {
  const Strings args = {"generate", "-p", "The quick brown fox jumps over", "-n", "40"};
  const auto patient = with_limit("WEFT_HEARTBEAT_TIMEOUT_S", "60");
  BackgroundCommand right(half(1, args), patient);
  BackgroundCommand left(half(0, args), patient);
  ASSERT_TRUE(left.wait_for_output("[0]  a lazy dog"));
  hosts().cut();
  std::this_thread::sleep_for(std::chrono::seconds(8));
  hosts().mend();
  for (BackgroundCommand* each : {&left, &right}) {
    const CommandResult result = each->finish();
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(result.err.find("CommError"), std::string::npos) << result.err;
  }
}

// The store can be reached, and nothing else.
TEST_F(OnTwoHosts, RanksWhoseDataPortsAreFilteredGiveUpAfterTheStartTimeout) {
  hosts().filter();
  const Strings args = {"generate", "-p", "Hello", "-n", "8"};
  const auto hasty = with_limit("WEFT_START_TIMEOUT_S", "5");
  BackgroundCommand right(half(1, args), hasty);
  BackgroundCommand left(half(0, args), hasty);
  const CommandResult of_left = left.finish();
  const CommandResult of_right = right.finish();
  EXPECT_EQ(of_left.status, 4);
  EXPECT_EQ(of_right.status, 4);
  EXPECT_FALSE(of_left.timed_out || of_right.timed_out);
  EXPECT_NE(of_left.err.find("cannot connect"), std::string::npos) << of_left.err;
  EXPECT_EQ(num_lines(of_left.err), 1) << of_left.err;
  EXPECT_EQ(of_left.err, of_right.err);
}

TEST_F(OnTwoHosts, ANameThatBecomesKnownLateIsTriedAgain) {
  const auto side = [&](int host) {
    Strings launch = joined(weft_command({"launch", "-n", "2"}), hosts().launch_flags(host));
    std::replace(launch.begin(), launch.end(), test::TwoHosts::address(),
                 test::TwoHosts::late_name());
    return hosts().on(host, joined(launch, {"--", "sh", "-c", "exec \"$0\" \"$@\"", kWeft,
                                            "generate", "-p", "Hello", "-n", "4"}));
  };
  BackgroundCommand right(side(1), with_model());
  BackgroundCommand left(side(0), with_model());
  std::this_thread::sleep_for(std::chrono::seconds(2));
  hosts().tell_name();
  const CommandResult of_left = left.finish();
  EXPECT_EQ(of_left.status, 0) << of_left.err;
  const CommandResult of_right = right.finish();
  EXPECT_EQ(of_right.status, 0) << of_right.err;
}

TEST_F(OnTwoHosts, TheModelAnswersOverIpv6) {
  const auto side = [&](int host) {
    Strings launch = joined(weft_command({"launch", "-n", "2"}), hosts().launch_flags(host));
    std::replace(launch.begin(), launch.end(), test::TwoHosts::address(),
                 test::TwoHosts::address6());
    return hosts().on(
        host, joined(launch, joined({"--"}, weft_command({"generate", "-p", "Hello", "-n", "4"}))));
  };
  BackgroundCommand right(side(1), with_model());
  BackgroundCommand left(side(0), with_model());
  const CommandResult of_left = left.finish();
  EXPECT_EQ(of_left.status, 0) << of_left.err;
  EXPECT_EQ(right.finish().status, 0);
}

TEST_F(OnTwoHosts, AHostWithAnotherKeyIsRefused) {
  const Strings args = {"generate", "-p", "Hello", "-n", "8"};
  const auto keyed = [](const char* key) {
    auto options = with_model();
    options.variables.emplace_back("WEFT_JOB_KEY", key);
    options.variables.emplace_back("WEFT_START_TIMEOUT_S", "5");
    return options;
  };
  BackgroundCommand left(half(0, args), keyed("the key of this job alone"));
  BackgroundCommand right(half(1, args), keyed("the key of another job"));
  const CommandResult of_right = right.finish();
  EXPECT_EQ(of_right.status, 2);
  EXPECT_NE(of_right.err.find("expected the key of this job, got another"), std::string::npos)
      << of_right.err;
  EXPECT_EQ(left.finish().status, 4);
}

// In place of ssh: the other host is a network namespace. As with ssh, what runs there gets no
// signal, but the end of its stdin.
class ByShell {
 public:
  explicit ByShell(const test::TwoHosts& hosts)
      : path_("/tmp/weft-shell-" + std::to_string(getpid())) {
    std::ofstream script(path_);
    script << "#!/bin/sh\nexec setsid --wait ip netns exec " << hosts.space(1)
           << " env -u WEFT_SSH WEFT_HOST=right sh -c \"$2\"\n";
    script.close();
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all);
  }
  ByShell(const ByShell&) = delete;
  ByShell& operator=(const ByShell&) = delete;
  ~ByShell() { std::filesystem::remove(path_); }

  static Strings launch() {
    const std::string names = test::TwoHosts::address() + "," + test::TwoHosts::other_address();
    return weft_command({"launch", "-n", "2", "--hosts", names, "--"});
  }

  test::CommandOptions options() const {
    auto options = with_model();
    options.variables.emplace_back("WEFT_SSH", path_);
    return options;
  }

 private:
  std::string path_;
};

TEST_F(OnTwoHosts, NothingIsLeftOnAnyHostWhenTheOneCommandEnds) {
  const ByShell shell(hosts());
  const Strings endless =
      joined(ByShell::launch(),
             weft_command({"generate", "-p", "The quick brown fox jumps over", "-n", "100000"}));
  for (const int number : {SIGTERM, SIGKILL}) {
    BackgroundCommand all(hosts().on(0, endless), shell.options());
    ASSERT_TRUE(all.wait_for_output("[0]  a lazy dog"));
    all.signal(number);
    EXPECT_FALSE(all.finish().timed_out);
    const auto left_over = [&] {
      return test::run_command({"ip", "netns", "pids", hosts().space(0)}).out +
             test::run_command({"ip", "netns", "pids", hosts().space(1)}).out;
    };
    for (int i = 0; i < 100 && !left_over().empty(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_EQ(left_over(), "") << number;
  }
}

TEST_F(OnTwoHosts, OneCommandStartsAllHosts) {
  const ByShell shell(hosts());
  const Strings launch = ByShell::launch();
  const Strings answer =
      weft_command({"generate", "-p", "The quick brown fox jumps over", "-n", "8"});
  const CommandResult result =
      test::run_command(hosts().on(0, joined(launch, answer)), shell.options());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "[0]  a lazy dog\n[0] \n[0] In this example\n");
  const CommandResult wrong = test::run_command(
      hosts().on(0, joined(launch, weft_command({"generate", "no-such-model.gguf", "-p", "Hi"}))),
      shell.options());
  EXPECT_EQ(wrong.status, 3);
  EXPECT_EQ(std::count(wrong.err.begin(), wrong.err.end(), '\n'), 1) << wrong.err;
}

}  // namespace
}  // namespace weft::cli
