#include "weft/dist/world.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <regex>

#include "tests/dist/message_of.h"
#include "tests/support/run_command.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist/launch/launch.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/launch/shm_names.h"
#include "weft/dist/shm/segment.h"

namespace weft::dist {
namespace {

using test::message_of;

TEST(World, PicksSharedMemoryOnOneHost) {
  test::run_ranks(2, [](World& world) {
    EXPECT_EQ(world.backend(), "shm");
    EXPECT_EQ(world.info().launcher, "weft");
  });
}

TEST(World, OfOneHasNoBackend) {
  const World world = World::from_env();
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.backend(), "none");
  EXPECT_EQ(world.group().size(), 1);
  EXPECT_EQ(world.make_group("mine", {0}).size(), 1);
}

TEST(World, LeavesNoNameInSharedMemory) {
  test::run_ranks(2, [](World& world) {
    const Group other = world.make_group("other", {0, 1});
    other.barrier();
    const std::string mine = core::join("weft-", geteuid(), "-", short_hash(world.info().job_id));
    // Rank 0 removes the names before it leaves make_group.
    if (world.rank() != 0) return other.barrier();
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      EXPECT_EQ(entry.path().filename().string().rfind(mine, 0), std::string::npos) << entry;
    }
    other.barrier();
  });
}

std::string world_refusal(const std::string& backend) {
  return message_of<core::ConfigError>([&] { World::from_env({.backend = backend}); });
}

TEST(World, RefusesABackendThatThereIsNotAlsoAlone) {
  EXPECT_EQ(world_refusal("infiniband")
                .find("dist.World: backend: this build has no infiniband backend; "
                      "use one of: shm, "),
            0);
}

TEST(World, AFinalBackendIsNotReplacedByTheVariable) {
  const auto refusal_of = [](bool is_final) {
    const auto result = test::run_forked([is_final] {
      setenv("WEFT_BACKEND", "smoke", 1);
      World::from_env({.backend = "infiniband", .is_backend_final = is_final});
      return 0;
    });
    return result.err.substr(0, result.err.find(';'));
  };
  EXPECT_EQ(refusal_of(true), "dist.World: backend: this build has no infiniband backend");
  EXPECT_EQ(refusal_of(false), "dist.World: backend: this build has no smoke backend");
}

TEST(World, RefusesBadTimeouts) {
  const auto result = test::run_forked([] {
    setenv("WEFT_TIMEOUT_S", "soon", 1);
    World::from_env();
    return 0;
  });
  EXPECT_EQ(result.err,
            "dist.World: WEFT_TIMEOUT_S: expected seconds from 1 to 1000000, got 'soon'\n");
}

TEST(World, RefusesGroupsThatAreNone) {
  const World world = World::from_env();
  const auto refused = [&](const std::vector<int>& ranks) {
    try {
      world.make_group("odd", ranks);
    } catch (const core::ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(refused({}), "dist.World.make_group: odd: expected ranks, got none");
  EXPECT_EQ(refused({1}), "dist.World.make_group: odd: expected ascending ranks below 1, got [1]");
  EXPECT_EQ(refused({0, 0}),
            "dist.World.make_group: odd: expected ascending ranks below 1, got [0, 0]");
}

// The ranks of one job, as a launcher that is not ours starts them.
TEST(WorldProgram, DISABLED_ReducesWhereverItRuns) {
  World world = World::from_env();
  at::Tensor x = at::full({1000}, world.rank() + 1, at::kFloat);
  world.group().all_reduce(x);
  world.group().barrier();
  std::printf("%s %s %g\n", world.info().launcher.c_str(), world.backend().c_str(),
              x[999].item<double>());
}

std::vector<std::string> world_program() {
  return {"/proc/" + std::to_string(getpid()) + "/exe", "--gtest_also_run_disabled_tests",
          "--gtest_brief=1", "--gtest_filter=WorldProgram.DISABLED_ReducesWhereverItRuns"};
}

void expect_runs_under(const std::vector<std::string>& launcher, const std::string& line) {
  const auto found = test::run_command({"which", launcher[0]});
  if (found.status != 0) GTEST_SKIP() << launcher[0] << " is not installed";
  std::vector<std::string> command = launcher;
  for (const auto& word : world_program()) command.push_back(word);
  const auto result = test::run_command(command);
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  size_t lines = 0;
  for (size_t at = result.out.find(line); at != std::string::npos;
       at = result.out.find(line, at + 1)) {
    ++lines;
  }
  EXPECT_EQ(lines, 2U) << result.out << result.err;
}

TEST(World, ComesTogetherUnderOpenMpi) {
  expect_runs_under({"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"},
                    "openmpi shm 3\n");
}

TEST(World, ComesTogetherUnderMpich) {
  expect_runs_under({"mpirun.mpich", "-n", "2"}, "mpich shm 3\n");
}

TEST(World, ComesTogetherWithTorchrunsVariables) {
  test::BackgroundCommand other(world_program(), {.variables = {{"RANK", "1"},
                                                                {"WORLD_SIZE", "2"},
                                                                {"MASTER_ADDR", "127.0.0.1"},
                                                                {"MASTER_PORT", "29631"}}});
  const auto result =
      test::run_command(world_program(), {.variables = {{"RANK", "0"},
                                                        {"WORLD_SIZE", "2"},
                                                        {"MASTER_ADDR", "127.0.0.1"},
                                                        {"MASTER_PORT", "29631"}}});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_NE(result.out.find("torchrun shm 3\n"), std::string::npos) << result.out;
  EXPECT_EQ(other.finish().status, 0);
}

// Runs rank 0 and, behind `before_rank_1`, rank 1 of a job, and expects that they share memory.
void expect_shared_memory(const std::string& job, const std::vector<std::string>& before_rank_1) {
  const auto variables = [&](const char* rank) {
    return test::CommandOptions{
        .variables = {{"RANK", rank}, {"WORLD_SIZE", "2"}, {"WEFT_JOB_ID", job}}};
  };
  std::vector<std::string> program = world_program();
  program[0] = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> command = before_rank_1;
  command.insert(command.end(), program.begin(), program.end());
  test::BackgroundCommand other(command, variables("1"));
  const auto result = test::run_command(program, variables("0"));
  const auto other_result = other.finish();
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_NE(result.out.find(" shm 3\n"), std::string::npos) << result.out << result.err;
  EXPECT_EQ(other_result.status, 0) << other_result.out << other_result.err;
}

TEST(World, SharesMemoryThoughItsNameIsTaken) {
  const std::string job = "taken-" + std::to_string(getpid());
  const std::string name = shm_name(job, "0-0");
  const ShmSegment taken = ShmSegment::create(name, ShmLayout(2));
  expect_shared_memory(job, {});
  unlink_shm(name);
}

// As in two containers that have one /dev/shm: the memory gets a name after all.
TEST(World, SharesMemoryWithARankThatSeesNoOtherProcesses) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes namespaces";
  const std::string job = "apart-" + std::to_string(getpid());
  expect_shared_memory(job, {"unshare", "--pid", "--fork", "--mount-proc"});
  EXPECT_FALSE(std::filesystem::exists("/dev/shm" + shm_name(job, "0-0")));
}

TEST(World, RefusesRanksOfWhichOnlySomeCheckTheirCalls) {
  LaunchOptions options;
  options.num_ranks = 2;
  options.command = {"sh", "-c", "WEFT_CHECK_COLLECTIVES=$RANK exec \"$@\"", "sh"};
  for (const auto& word : world_program()) options.command.push_back(word);
  const auto result = test::run_forked([&] { return launch(options); });
  EXPECT_NE(result.status, 0);
  const std::regex world_refusal(
      "dist.World: ranks differ: rank [01] has build weft-[^ ]+-libtorch-[^ ]+, backend "
      "shm(\\(checked\\))?, 2 "
      "ranks; rank [01] has build weft-[^ ]+-libtorch-[^ ]+, backend shm(\\(checked\\))?, 2 ranks; "
      "start all ranks "
      "with the same program and options");
  EXPECT_TRUE(std::regex_search(result.out + result.err, world_refusal))
      << result.out << result.err;
}

TEST(World, NamesTheRankThatDidNotCome) {
  const auto result = test::run_command(
      world_program(), {.variables = {{"RANK", "0"},
                                      {"WORLD_SIZE", "2"},
                                      {"WEFT_JOB_ID", "lonely-" + std::to_string(getpid())},
                                      {"WEFT_START_TIMEOUT_S", "1"}}});
  EXPECT_NE(result.out.find("dist.World: rank 1 of 2 did not come within 1 s; did it start? "
                            "(WEFT_START_TIMEOUT_S)"),
            std::string::npos)
      << result.out << result.err;
}

}  // namespace
}  // namespace weft::dist
