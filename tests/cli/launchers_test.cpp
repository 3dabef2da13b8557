// The program on ranks that other launchers have started.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "tests/cli/processes.h"
#include "tests/cli/weft_command.h"
#include "tests/core/temp_dir.h"

namespace weft::cli {
namespace {

using test::BackgroundCommand;
using test::CommandResult;
using Strings = std::vector<std::string>;

const Strings kAnswer = {"generate", "-p", "The quick brown fox jumps over", "-n", "8"};
constexpr char kContinuation[] = " a lazy dog\n\nIn this example\n";

Strings answer_command() { return weft_command(kAnswer); }

bool is_installed(const std::string& program) {
  return test::run_command({"sh", "-c", "command -v " + program}).status == 0;
}

test::CommandOptions rank_options(const std::string& rank, const std::string& port) {
  return with_model({.variables = {{"RANK", rank},
                                   {"WORLD_SIZE", "2"},
                                   {"LOCAL_RANK", rank},
                                   {"LOCAL_WORLD_SIZE", "2"},
                                   {"MASTER_ADDR", "127.0.0.1"},
                                   {"MASTER_PORT", port}}});
}

TEST(Launchers, WeftItselfStartsTheRanks) {
  const CommandResult result = weft(joined({"launch", "-n", "2", "--"}, answer_command()));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "[0]  a lazy dog\n[0] \n[0] In this example\n");
}

// An unknown name is refused where it is the one that counts.
TEST(Launchers, TheFlagOfAVerbWinsOverItsLaunchersVariable) {
  const Strings asked = joined(answer_command(), {"--backend", "smoke"});
  const Strings all_flags[] = {{}, {"--backend", "shm"}};
  for (const Strings& flags : all_flags) {
    const CommandResult result =
        weft(joined(joined(joined({"launch", "-n", "2"}, flags), {"--"}), asked));
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.err.find("this build has no smoke backend"), std::string::npos) << result.err;
  }
}

TEST(Launchers, WeftsOwnPortHasAnotherVariableThanTheServers) {
  const UsedPort used;
  const auto launch_with = [&](const char* name) {
    return weft({"launch", "-n", "1", "--", "true"}, {.variables = {{name, used.text()}}});
  };
  EXPECT_EQ(launch_with("WEFT_PORT").status, 0);
  const CommandResult refused = launch_with("WEFT_LAUNCH_PORT");
  EXPECT_EQ(refused.err, "weft: IoError: weft launch: port " + used.text() +
                             " on 127.0.0.1 is in use; choose another port\n");
}

TEST(Launchers, WeftPassesTheStatusOfTheProgram) {
  EXPECT_EQ(weft({"launch", "-n", "2", "--", "true"}).status, 0);
  EXPECT_NE(weft({"launch", "-n", "2", "--", "false"}).status, 0);
}

TEST(Launchers, OpenMpiStartsTheRanks) {
  if (!is_installed("mpirun.openmpi")) GTEST_SKIP() << "mpirun.openmpi is not installed";
  const CommandResult result = test::run_command(
      joined({"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"},
             answer_command()),
      with_model());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, kContinuation);
}

TEST(Launchers, MpichStartsTheRanks) {
  if (!is_installed("mpirun.mpich")) GTEST_SKIP() << "mpirun.mpich is not installed";
  const CommandResult result =
      test::run_command(joined({"mpirun.mpich", "-n", "2"}, answer_command()), with_model());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, kContinuation);
}

// It can end them itself only while it lives, and no rank waits for another here.
TEST(Launchers, RanksEndWithAnMpirunThatIsKilled) {
  if (!is_installed("mpirun.openmpi")) GTEST_SKIP() << "mpirun.openmpi is not installed";
  BackgroundCommand job(
      joined({"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"},
             weft_command({"serve", "--port", "0"})),
      with_model());
  ASSERT_TRUE(job.wait_for_output("http://"));
  const std::vector<int> ranks = children_of(job.pid());
  ASSERT_EQ(ranks.size(), 2U);
  kill(job.pid(), SIGKILL);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  for (const int rank : ranks) {
    while (process_state(rank).state != 'X' && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(process_state(rank).state, 'X') << rank;
  }
}

// Each system's process numbers are below this one.
TEST(Launchers, RanksEndIfTheirMpirunHadEndedBeforeTheyCouldLook) {
  if (!is_installed("mpirun.openmpi")) GTEST_SKIP() << "mpirun.openmpi is not installed";
  constexpr ino_t kFirstProcessSpace = 0xEFFFFFFC;
  struct stat space = {};
  if (stat("/proc/self/ns/pid", &space) != 0 || space.st_ino != kFirstProcessSpace) {
    GTEST_SKIP() << "a container has process numbers of its own";
  }
  const testing::TempDir dir;
  const std::string folder = dir.at("pid.4194305");
  std::filesystem::create_directory(folder);
  const CommandResult result =
      test::run_command(joined({"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n",
                                "2", "env", "PMIX_SERVER_TMPDIR=" + folder},
                               weft_command({"serve", "--port", "0"})),
                        with_model());
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.out << result.err;
}

TEST(Launchers, VariablesOfTorchrunMakeRanks) {
  const std::string port = free_port();
  // Hosts may lend other numbers of threads; all else must be the same on all.
  BackgroundCommand other(joined(answer_command(), {"--threads", "1"}), rank_options("1", port));
  BackgroundCommand root(answer_command(), rank_options("0", port));
  const CommandResult of_root = root.finish();
  const CommandResult of_other = other.finish();
  EXPECT_EQ(of_root.status, 0) << of_root.err;
  EXPECT_EQ(of_root.out, kContinuation);
  EXPECT_EQ(of_other.status, 0) << of_other.err;
  EXPECT_EQ(of_other.out + of_other.err, "");
}

// Runs both as ranks of one job and expects that each refuses with this line.
void expect_to_differ(const Strings& of_rank_0, const Strings& of_rank_1, const std::string& said) {
  const std::string port = free_port();
  BackgroundCommand other(of_rank_1, rank_options("1", port));
  BackgroundCommand root(of_rank_0, rank_options("0", port));
  const std::string line = "weft: CommError: dist.World: ranks differ: " + said +
                           "; start all ranks with the same program and options\n";
  for (BackgroundCommand* rank : {&root, &other}) {
    const CommandResult result = rank->finish();
    EXPECT_EQ(result.status, 4);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(line), std::string::npos) << result.err;
  }
}

TEST(Launchers, RanksThatAreAskedForDifferentThingsAreRefused) {
  expect_to_differ(joined(answer_command(), {"--seed", "1"}),
                   joined(answer_command(), {"--seed", "2"}),
                   "rank 0 was given '--seed 1', rank 1 '--seed 2'");
  expect_to_differ(answer_command(), joined(answer_command(), {"--ignore-eos"}),
                   "rank 0 was given nothing more, rank 1 '--ignore-eos'");
}

TEST(Launchers, RanksThatTrainDifferentRunsAreRefused) {
  const testing::TempDir dir;
  const auto run_of = [&](const std::string& lr) {
    const std::string text =
        "model.hidden_size = 8\nmodel.num_layers = 1\nmodel.num_heads = 2\nmesh.tp = 2\n"
        "batch.sequences = 1\nbatch.sequence_length = 32\ntrain.steps = 1\noptimizer.lr = " +
        lr + "\nmodel.tokenizer = \"" + kByteTokenizer + "\"\ndata.train = [\"" + kConstitution +
        "\"]\ncheckpoint.folder = \"" + dir.path() + "/run\"\n";
    return weft_command({"train", dir.write(lr + ".toml", text)});
  };
  expect_to_differ(run_of("0.5"), run_of("0.25"),
                   "rank 0 was given 'optimizer.lr = 0.5', rank 1 'optimizer.lr = 0.25'");
}

TEST(Launchers, OtherRanksThanAskedForAreRefusedOnce) {
  const CommandResult result =
      weft(joined(joined({"launch", "-n", "2", "--"}, answer_command()), {"--tp", "3"}));
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("weft: ConfigError: --tp: 3, but weft started 2 ranks"),
            std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace weft::cli
