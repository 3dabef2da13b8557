#include "weft/dist/launch/remote_launch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/run_command.h"
#include "weft/dist/launch/launch.h"
#include "weft/dist/launch/process.h"

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

TEST(RemoteLaunchProgram, DISABLED_LaunchesOne) {
  LaunchOptions options;
  options.command = {"sh", "-c", std::getenv("SCRIPT")};
  std::exit(launch(options));
}

// As ssh does: what runs there gets no signal, but the end of its stdin.
RemoteLaunch elsewhere() {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  return {{{"sh", "-c",
            "exec setsid --wait env WEFT_LAUNCH_LIFELINE=input WEFT_JOB_KEY_FILE=/dev/stdin \"$0\" "
            "--gtest_also_run_disabled_tests --gtest_brief=1 "
            "--gtest_filter=RemoteLaunchProgram.DISABLED_LaunchesOne",
            program}},
          "the key of the job",
          {1}};
}

test::CommandOptions rank_runs(const std::string& script, const std::string& input = "") {
  return {.variables = {{"SCRIPT", script}}, .input = input, .timeout = std::chrono::seconds(60)};
}

TEST(RemoteLaunch, RankZeroElsewhereReadsWhatIsTypedHere) {
  const auto result = test::run_forked([] { return launch_remotely(elsewhere()); },
                                       rank_runs("exec wc -c", std::string(3 << 20, 'y')));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.out.find("[0] " + std::to_string(3 << 20) + "\n"), std::string::npos)
      << result.out;
}

TEST(RemoteLaunch, ASignalEndsTheOneHostElsewhereWhoseLastWordsAreHeard) {
  const std::string script =
      "trap 'echo saved; exit 0' TERM; echo pid=$$=; while :; do sleep 0.05; done";
  // It may have read the end of its input, which is not that of the command.
  for (const size_t unread : {size_t{0}, size_t{200'000}}) {
    test::BackgroundCommand command([] { return launch_remotely(elsewhere()); },
                                    rank_runs(script, std::string(unread, 'y')));
    ASSERT_TRUE(command.wait_for_output("[0] pid="));
    command.signal(SIGTERM);
    const auto result = command.finish();
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.status, 128 + SIGTERM);
    EXPECT_NE(result.out.find("[0] saved\n"), std::string::npos) << result.out << result.err;
  }
}

TEST(RemoteLaunch, TheOneHostElsewhereEndsWithAKilledCommand) {
  test::BackgroundCommand command([] { return launch_remotely(elsewhere()); },
                                  rank_runs("echo pid=$$=; exec sleep 300"));
  ASSERT_TRUE(command.wait_for_output("[0] pid="));
  command.signal(SIGKILL);
  const std::string out = command.finish().out;
  const size_t start = out.find("pid=");
  ASSERT_NE(start, std::string::npos) << out;
  const pid_t pid = std::stoi(out.substr(start + 4));
  for (int i = 0; i < 3000 && process_start_time(pid) != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(process_start_time(pid), 0U) << "rank with pid " << pid << " still runs";
}

TEST(RelayedInput, PutsPiecesTogetherThatComeInParts) {
  RelayedInput relayed;
  const std::string text =
      RelayedInput::piece_of("one\n") + RelayedInput::piece_of("2\n") + RelayedInput::piece_of("");
  for (const char byte : text) relayed.feed({&byte, 1});
  relayed.feed(RelayedInput::piece_of("after the end"));
  while (relayed.writer() >= 0) relayed.write_some();
  std::string got(100, ' ');
  const ssize_t length = read(relayed.reader(), got.data(), got.size());
  EXPECT_EQ(got.substr(0, static_cast<size_t>(std::max<ssize_t>(length, 0))), "one\n2\n");
  EXPECT_EQ(read(relayed.reader(), got.data(), got.size()), 0);
}

}  // namespace
}  // namespace weft::dist
