// Ranks that die or stop, in real processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <regex>

#include "tests/support/backends.h"
#include "tests/support/run_command.h"
#include "weft/core/error.h"
#include "weft/dist/launch/launch.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/launch/status_page.h"
#include "weft/dist/rendezvous/handshake.h"
#include "weft/dist/rendezvous/peers.h"
#include "weft/dist/rendezvous/rank_info.h"
#include "weft/dist/rendezvous/rendezvous.h"
#include "weft/dist/world.h"

namespace weft::dist {
namespace {

using test::BackgroundCommand;
using test::CommandResult;

// What weft's own program does with an error.
[[noreturn]] void end_with(const core::Error& error) {
  const std::string line = core::join("weft: ", error.type(), ": ", error.what());
  if (should_report(line)) std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(nullptr);
  _exit(error.exit_code());
}

// A rank that reduces until something goes wrong.
TEST(FaultProgram, DISABLED_ReducesForever) {
  try {
    const World world = World::from_env();
    at::Tensor x = at::ones({1000});
    for (int i = 0;; ++i) {
      if (i == 3) {
        std::printf("rank %d is process =%d=\n", world.rank(), getpid());
        std::fflush(stdout);
      }
      world.group().all_reduce(x, ReduceOp::kAverage);
      usleep(2000);
    }
  } catch (const core::Error& error) {
    end_with(error);
  }
}

// One of the ranks fails by itself while the others wait for it.
TEST(FaultProgram, DISABLED_RankOneFindsABadFile) {
  try {
    const World world = World::from_env();
    if (world.rank() == 1) core::fail<core::FormatError>("model.gguf: byte 7: expected GGUF");
    world.group().barrier();
  } catch (const core::Error& error) {
    end_with(error);
  }
}

TEST(FaultProgram, DISABLED_AllFindTheSameBadFile) {
  try {
    const World world = World::from_env();
    // A rank that is still meeting the others would tell of those that have ended.
    world.group().barrier();
    core::fail<core::FormatError>("model.gguf: byte 7: expected GGUF");
  } catch (const core::Error& error) {
    end_with(error);
  }
}

// Rank 2 writes to rank 1, which has gone, and is the first to be found dead.
TEST(FaultProgram, DISABLED_RankTwoLosesItsPeer) {
  const World world = World::from_env();
  if (world.rank() == 2) raise(SIGPIPE);
  usleep(100'000);
  if (world.rank() == 1) raise(SIGKILL);
  pause();
}

// Rank 1 is stopped before it meets the others, which wait for it.
TEST(FaultProgram, DISABLED_RankOneStopsAsItStarts) {
  try {
    if (rank_info_from_env().rank == 1) raise(SIGSTOP);
    World::from_env();
  } catch (const core::Error& error) {
    end_with(error);
  }
}

// Rank 1 meets the others and connects to none of them.
TEST(FaultProgram, DISABLED_RankOneNeverConnects) {
  try {
    RankInfo info = rank_info_from_env();
    if (info.rank != 1) World::from_env();
    const Meeting meeting = open_store(info, std::chrono::seconds(30));
    meet_ranks(meeting, info, {"gloo", {}}, std::chrono::seconds(30));
    start_heartbeat();
    sleep(60);
  } catch (const core::Error& error) {
    end_with(error);
  }
}

// Rank 1 gives less than the others, and nobody compares the calls.
TEST(FaultProgram, DISABLED_RankOneReducesLess) {
  try {
    const World world = World::from_env();
    at::Tensor x = at::ones({world.rank() == 1 ? 500 : 1000});
    world.group().all_reduce(x);
  } catch (const core::Error& error) {
    end_with(error);
  }
}

// Rank 0 is done when rank 1 has its message; rank 1 gives rank 2 one later.
TEST(FaultProgram, DISABLED_PassesAMessageOnAfterItsFirstSenderHasEnded) {
  try {
    std::optional<World> world(World::from_env());
    const int rank = world->rank();
    at::Tensor x = at::full({1}, getpid(), at::kLong);
    if (rank == 0) {
      world->group().send(x, 1);
      world.reset();
      // At once: MPI's own end would wait for the others.
      _exit(0);
    }
    world->group().receive(x, rank - 1);
    if (rank == 2) return;
    const auto first = static_cast<pid_t>(x.item<int64_t>());
    while (process_start_time(first) != 0) usleep(10'000);
    // Longer than a rank that waits goes without looking after the others.
    usleep(500'000);
    world->group().send(x, 2);
  } catch (const core::Error& error) {
    end_with(error);
  }
}

LaunchOptions fault_program(const std::string& name, const std::string& backend) {
  LaunchOptions options;
  options.num_ranks = 3;
  options.backend = backend;
  options.command = {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                     "--gtest_filter=FaultProgram.DISABLED_" + name};
  return options;
}

// Sends `number` to rank 1 of a job that is in the middle of its work.
CommandResult hit_rank_one(const std::string& backend, int number, const std::string& checked) {
  BackgroundCommand command([&] { return launch(fault_program("ReducesForever", backend)); },
                            {.variables = {{"WEFT_CHECK_COLLECTIVES", checked}}});
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_TRUE(command.wait_for_output(core::join("[", rank, "] rank ", rank, " is process =")));
  }
  // The line above may stand in the output only in part.
  EXPECT_TRUE(command.wait_for_output("=\n"));
  std::smatch match;
  const std::string seen = command.output();
  EXPECT_TRUE(std::regex_search(seen, match, std::regex("rank 1 is process =([0-9]+)=")));
  kill(std::stoi(match[1]), number);
  return command.finish();
}

class FaultOn : public test::OnEachBackend {};
INSTANTIATE_TEST_SUITE_P(Backends, FaultOn, test::kEachBackend, test::backend_of);

TEST_P(FaultOn, AKilledRankIsNamedAndEndsTheJob) {
  for (const char* checked : {"0", "1"}) {
    const CommandResult result = hit_rank_one(GetParam(), SIGKILL, checked);
    EXPECT_FALSE(result.timed_out);
    EXPECT_EQ(result.status, 4);
    EXPECT_TRUE(std::regex_search(
        result.err,
        std::regex("weft launch: CommError: rank 1 \\(pid [0-9]+, host .+\\) was killed "
                   "by SIGKILL (during|after) all_reduce #[0-9]+ of group world; the "
                   "other ranks were ended\n")))
        << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST_P(FaultOn, AStoppedRankIsNamedAndEndsTheJob) {
  const CommandResult result = hit_rank_one(GetParam(), SIGSTOP, "0");
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, 4);
  EXPECT_TRUE(std::regex_search(
      result.err, std::regex("rank 1 \\(pid [0-9]+, host .+\\) has not answered for [0-9]+ s: "
                             "stopped or stuck (during|after) all_reduce")))
      << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
}

class FaultOnOwnTransport : public test::OnEachBackend {};
INSTANTIATE_TEST_SUITE_P(Backends, FaultOnOwnTransport, ::testing::Values("shm", "mpi"),
                         test::backend_of);

TEST_P(FaultOnOwnTransport, AMessageIsNotLostBecauseAThirdRankIsDone) {
  const LaunchOptions options =
      fault_program("PassesAMessageOnAfterItsFirstSenderHasEnded", GetParam());
  const CommandResult result = test::run_forked([&] { return launch(options); },
                                                {.variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_EQ(result.err, "");
}

TEST(Fault, ARankThatIsStoppedAsItStartsIsNamedInTime) {
  LaunchOptions options = fault_program("RankOneStopsAsItStarts", "auto");
  options.num_ranks = 4;
  const auto start = std::chrono::steady_clock::now();
  const CommandResult result = test::run_forked([&] { return launch(options); });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_EQ(result.status, 4);
  EXPECT_TRUE(std::regex_match(
      result.err, std::regex("weft launch: CommError: rank 1 \\(pid [0-9]+, host .+\\) has not "
                             "answered for 7 s \\(stopped or stuck\\) before its first operation; "
                             "the other ranks were ended\n")))
      << result.err;
}

TEST(Fault, ConnectingHasTheLimitOfTheStart) {
  LaunchOptions options = fault_program("RankOneNeverConnects", "gloo");
  options.num_ranks = 2;
  const auto start = std::chrono::steady_clock::now();
  const CommandResult result =
      test::run_forked([&] { return launch(options); },
                       {.variables = {{"WEFT_START_TIMEOUT_S", "2"}, {"WEFT_TIMEOUT_S", "60"}}});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  EXPECT_EQ(result.status, 4);
  EXPECT_TRUE(
      std::regex_match(result.err, std::regex("\\[0\\] weft: CommError: dist.World: the ranks "
                                              "of group world cannot connect \\(.*\n")))
      << result.err;
}

TEST(Fault, ARankThatLostItsPeerIsNotTheCause) {
  const CommandResult result =
      test::run_forked([] { return launch(fault_program("RankTwoLosesItsPeer", "auto")); });
  EXPECT_EQ(result.status, 4);
  EXPECT_NE(result.err.find("rank 1 ("), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("was killed by SIGKILL"), std::string::npos) << result.err;
}

// Gloo throws on a thread of its own, where nobody can catch it.
TEST(Fault, WhatGlooThrowsOnItsThreadsIsALine) {
  const CommandResult result =
      test::run_forked([] { return launch(fault_program("RankOneReducesLess", "gloo")); },
                       {.variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}});
  EXPECT_EQ(result.status, 4);
  EXPECT_TRUE(std::regex_match(
      result.err,
      std::regex(
          "\\[[0-2]\\] weft: CommError: dist.Group: during all_reduce #[0-9]+ of group world: "
          "Gloo cannot go on \\(.*Received data size doesn't match expected size.*\\); all "
          "ranks must make the same calls in the same order, and WEFT_CHECK_COLLECTIVES=1 "
          "names those that differ\n")))
      << result.err;
}

TEST(Fault, TheErrorOfOneRankIsTheJobs) {
  const CommandResult result =
      test::run_forked([] { return launch(fault_program("RankOneFindsABadFile", "auto")); });
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.err, "[1] weft: FormatError: model.gguf: byte 7: expected GGUF\n");
}

TEST(Fault, TheSameErrorOfAllRanksIsSaidOnce) {
  const CommandResult result =
      test::run_forked([] { return launch(fault_program("AllFindTheSameBadFile", "auto")); });
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.err, "weft: FormatError: model.gguf: byte 7: expected GGUF\n");
}

}  // namespace
}  // namespace weft::dist
