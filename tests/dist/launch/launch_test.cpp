#include "weft/dist/launch/launch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <thread>

#include "tests/core/error_text.h"
#include "tests/support/run_command.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/core/process_end.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/launch/shm_names.h"
#include "weft/dist/rendezvous/rendezvous.h"
#include "weft/dist/shm/segment.h"

namespace weft::dist {
namespace {

using test::BackgroundCommand;
using test::CommandResult;

LaunchOptions shell(int ranks, const std::string& script) {
  LaunchOptions options;
  options.num_ranks = ranks;
  options.command = {"sh", "-c", script};
  return options;
}

CommandResult run_launch(const LaunchOptions& options, const std::string& input = "") {
  return test::run_forked([&] { return launch(options); }, {.input = input});
}

std::string launch_error(const LaunchOptions& options) {
  return testing::error_text([&] { launch(options); });
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Bodies below begin with end_without_destructors(): what the tests before have left here has
// threads that are not in a copy, which therefore can't destroy it.
TEST(Launch, RunsAFunctionInCopiesOfThisProcess) {
  LaunchOptions options;
  options.num_ranks = 2;
  options.command = {"false"};
  options.body = [] {
    core::end_without_destructors();
    std::printf("rank %s of %s\n", std::getenv("RANK"), std::getenv("WORLD_SIZE"));
    return 0;
  };
  const CommandResult result = run_launch(options);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(sorted_lines(result.out),
            (std::vector<std::string>{"[0] rank 0 of 2", "[1] rank 1 of 2"}));
  options.body = [] {
    core::end_without_destructors();
    return std::string(std::getenv("RANK")) == "1" ? 3 : 0;
  };
  EXPECT_EQ(run_launch(options).status, 3);
}

TEST(Launch, ACopyHasNoDescriptorOfTheLaunchersOwn) {
  LaunchOptions options;
  options.command = {"false"};
  options.body = [] {
    core::end_without_destructors();
    // Its output goes to a pipe; a socket would be the one that the launcher listens on.
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
      if (target.starts_with("socket:") || target.find("signalfd") != std::string::npos) return 7;
    }
    return 0;
  };
  EXPECT_EQ(run_launch(options).status, 0);
}

TEST(Launch, PutsTheRankBeforeEveryWholeLine) {
  const CommandResult result =
      run_launch(shell(2, "printf 'one\\ntwo of %s' $RANK; echo error >&2"));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(sorted_lines(result.out),
            (std::vector<std::string>{"[0] one", "[0] two of 0", "[1] one", "[1] two of 1"}));
  EXPECT_EQ(result.out.back(), '\n');
  EXPECT_EQ(sorted_lines(result.err), (std::vector<std::string>{"[0] error", "[1] error"}));
}

TEST(Launch, LetsTheRanksWriteStraightThroughWithoutPrefix) {
  LaunchOptions options = shell(1, "printf plain");
  options.prefix_output = false;
  EXPECT_EQ(run_launch(options).out, "plain");
}

TEST(Launch, PassesLongOutputWhole) {
  const CommandResult result = run_launch(shell(2, "seq 1 100000"));
  EXPECT_EQ(result.status, 0);
  const auto lines = sorted_lines(result.out);
  ASSERT_EQ(lines.size(), 200'000U);
  EXPECT_EQ(lines.front(), "[0] 1");
  EXPECT_EQ(lines.back(), "[1] 99999");
}

TEST(Launch, TellsEveryRankItsPlace) {
  LaunchOptions options = shell(
      2,
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $WEFT_RANK $WEFT_BACKEND $MASTER_ADDR");
  options.backend = "gloo";
  EXPECT_EQ(
      sorted_lines(run_launch(options).out),
      (std::vector<std::string>{"[0] 0/2 0/2 0 gloo 127.0.0.1", "[1] 1/2 1/2 1 gloo 127.0.0.1"}));
}

// What its ranks were asked for counts where the launcher was asked for nothing.
TEST(Launch, SaysAutoOnlyInPlaceOfAnotherBackend) {
  const auto backend_of_rank = [](const char* backend, const char* variable) {
    LaunchOptions options = shell(1, "echo ${WEFT_BACKEND-none}");
    options.backend = backend;
    return test::run_forked([&] {
             if (variable != nullptr) setenv("WEFT_BACKEND", variable, 1);
             return launch(options);
           })
        .out;
  };
  EXPECT_EQ(backend_of_rank("auto", nullptr), "[0] none\n");
  EXPECT_EQ(backend_of_rank("auto", "gloo"), "[0] auto\n");
  EXPECT_EQ(backend_of_rank("shm", "gloo"), "[0] shm\n");
}

TEST(Launch, GivesStdinToRankZeroOnly) {
  EXPECT_EQ(run_launch(shell(2, "cat"), "hello\n").out, "[0] hello\n");
}

TEST(Launch, ReturnsTheStatusThatAllRanksShareWithoutAWord) {
  const CommandResult result = run_launch(shell(2, "exit 3"));
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.err, "");
}

TEST(Launch, EndsTheOthersWhenOneRankFails) {
  const CommandResult result = run_launch(shell(3, "test $RANK = 1 && exit 5; exec sleep 300"));
  EXPECT_EQ(result.status, 5);
  EXPECT_TRUE(std::regex_match(
      result.err, std::regex("weft launch: rank 1 \\(pid [0-9]+, host .+\\) ended with status 5; "
                             "the other ranks were ended\n")))
      << result.err;
}

TEST(Launch, KillsRanksThatIgnoreTheSignalToEnd) {
  LaunchOptions options =
      shell(2, "trap '' TERM; test $RANK = 1 && exit 7; while :; do sleep 0.1; done");
  options.grace = std::chrono::milliseconds(300);
  EXPECT_EQ(run_launch(options).status, 7);
}

TEST(Launch, NamesTheSignalThatKilledARank) {
  const CommandResult result =
      run_launch(shell(2, "test $RANK = 0 && kill -SEGV $$; exec sleep 300"));
  EXPECT_EQ(result.status, 4);
  EXPECT_TRUE(std::regex_match(
      result.err,
      std::regex("weft launch: CommError: rank 0 \\(pid [0-9]+, host .+\\) was killed by SIGSEGV "
                 "before its first operation; the other ranks were ended\n")))
      << result.err;
}

TEST(Launch, NamesARankThatIsStoppedFromItsFirstInstant) {
  const auto start = std::chrono::steady_clock::now();
  const CommandResult result =
      run_launch(shell(4, "test $RANK = 1 && kill -STOP $$; exec sleep 300"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(result.status, 4);
  EXPECT_TRUE(std::regex_match(
      result.err,
      std::regex(
          "weft launch: CommError: rank 1 \\(pid [0-9]+, host .+\\) has not answered for 7 s "
          "\\(stopped or stuck\\) before its first operation; the other ranks were ended\n")))
      << result.err;
}

TEST(Launch, LeavesRanksAloneThatTakeLongToStart) {
  EXPECT_EQ(run_launch(shell(2, "sleep 9")).status, 0);
}

TEST(Launch, RemovesSharedMemoryThatKilledRanksHaveLeft) {
  LaunchOptions options;
  options.num_ranks = 2;
  options.command = {"false"};
  options.body = [] {
    const std::string job = std::getenv("WEFT_JOB_ID");
    const std::string rank = std::getenv("RANK");
    ShmSegment::create(shm_name(job, rank), ShmLayout(2));
    std::printf("%s\n", job.c_str());
    std::fflush(stdout);
    if (rank == "1") raise(SIGKILL);
    pause();
    return 0;
  };
  const CommandResult result = run_launch(options);
  EXPECT_EQ(result.status, 4);
  const std::string job = result.out.substr(4, result.out.find('\n') - 4);
  EXPECT_EQ(job.rfind("weft-", 0), 0U) << result.out;
  for (const char* rank : {"0", "1"}) {
    EXPECT_FALSE(std::filesystem::exists("/dev/shm" + shm_name(job, rank))) << rank;
  }
}

TEST(Launch, PassesSignalsOnAndSaysSoInItsStatus) {
  BackgroundCommand command([] {
    return launch(shell(2,
                        "trap 'echo got it; exit 0' TERM; echo ready; "
                        "while :; do sleep 0.05; done"));
  });
  ASSERT_TRUE(command.wait_for_output("[0] ready"));
  ASSERT_TRUE(command.wait_for_output("[1] ready"));
  command.signal(SIGTERM);
  const CommandResult result = command.finish();
  EXPECT_EQ(result.status, 128 + SIGTERM);
  const auto lines = sorted_lines(result.out);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "[0] got it"), 1);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "[1] got it"), 1);
  EXPECT_EQ(result.err.find("weft launch"), std::string::npos) << result.err;
}

TEST(Launch, LeavesNoOrphanWhenItIsKilled) {
  BackgroundCommand command([] { return launch(shell(2, "echo pid=$$=; exec sleep 300")); });
  ASSERT_TRUE(command.wait_for_output("[0] pid="));
  ASSERT_TRUE(command.wait_for_output("[1] pid="));
  command.signal(SIGKILL);
  const CommandResult result = command.finish();
  EXPECT_EQ(result.status, 128 + SIGKILL);
  const std::regex pid_pattern("pid=([0-9]+)=");
  for (std::sregex_iterator it(result.out.begin(), result.out.end(), pid_pattern), end; it != end;
       ++it) {
    const pid_t pid = std::stoi((*it)[1]);
    for (int i = 0; i < 3000 && process_start_time(pid) != 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(process_start_time(pid), 0U) << "rank with pid " << pid << " still runs";
  }
}

TEST(Launch, IsQuietWhenNobodyReadsTheOutput) {
  const CommandResult result = test::run_command(
      {"sh", "-c",
       "exec 3>&1; (\"$0\" --gtest_also_run_disabled_tests "
       "--gtest_filter=LaunchProgram.DISABLED_Endless 2>&1 >&4 | cat >&2) 4>&1 | head -1",
       "/proc/" + std::to_string(getpid()) + "/exe"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err.find("weft launch"), std::string::npos) << result.err;
}

TEST(LaunchProgram, DISABLED_Endless) { std::exit(launch(shell(2, "exec yes"))); }

TEST(Launch, RefusesWhatCannotWork) {
  EXPECT_EQ(launch_error(shell(0, "true")),
            "ConfigError: weft launch: ranks: expected at least 1, got 0");
  EXPECT_EQ(launch_error({}),
            "ConfigError: weft launch: expected a program to start, got none; name one");
  LaunchOptions missing = shell(1, "");
  missing.command = {"/no/such/program"};
  EXPECT_EQ(launch_error(missing),
            "IoError: weft launch: cannot start '/no/such/program': No such file or directory");
}

TEST(Launch, SaysWhichPortIsInUse) {
  LaunchOptions options = shell(1, "true");
  const core::FileDescriptor other = listen_on_loopback(options.port);
  EXPECT_EQ(launch_error(options), core::join("IoError: weft launch: port ", options.port,
                                              " on 127.0.0.1 is in use; choose another port"));
}

}  // namespace
}  // namespace weft::dist
