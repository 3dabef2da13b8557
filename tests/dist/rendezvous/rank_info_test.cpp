#include "weft/dist/rendezvous/rank_info.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/dist/message_of.h"
#include "weft/core/error.h"

namespace weft::dist {
namespace {

using test::message_of;

using Environment = std::map<std::string, std::string>;

RankInfo read(const Environment& environment) {
  return rank_info_from_env([&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    if (found == environment.end()) return std::nullopt;
    return found->second;
  });
}

std::string environment_refusal(const Environment& environment) {
  return message_of<core::ConfigError>([&] { read(environment); });
}

struct Expected {
  const char* launcher;
  int rank, size, local_rank, local_size;
};

void expect_place(const Environment& environment, const Expected& expected) {
  const RankInfo info = read(environment);
  EXPECT_EQ(info.launcher, expected.launcher);
  EXPECT_EQ(info.rank, expected.rank);
  EXPECT_EQ(info.size, expected.size);
  EXPECT_EQ(info.local_rank, expected.local_rank);
  EXPECT_EQ(info.local_size, expected.local_size);
  EXPECT_FALSE(info.job_id.empty());
}

const Environment kWeft = {{"WEFT_RANK", "1"},         {"WEFT_WORLD_SIZE", "3"},
                           {"WEFT_LOCAL_RANK", "1"},   {"WEFT_LOCAL_WORLD_SIZE", "3"},
                           {"WEFT_JOB_ID", "j"},       {"RANK", "0"},
                           {"WORLD_SIZE", "1"},        {"WEFT_STORE_ADDRESS", "127.0.0.1"},
                           {"WEFT_STORE_PORT", "1234"}};
const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node0"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "none"},
                               {"TORCHELASTIC_RESTART_COUNT", "0"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "1953824769"}};
const Environment kMpich = {
    {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
const Environment kSlurm = {{"SLURM_JOB_ID", "77"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_PROCID", "3"},
                            {"SLURM_NTASKS", "4"},
                            {"SLURM_STEP_NUM_TASKS", "4"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};

Environment with(Environment environment, const std::string& name, const std::string& value) {
  environment[name] = value;
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

TEST(RankInfo, IsAWorldOfOneWithoutALauncher) {
  expect_place({}, {"none", 0, 1, 0, 1});
  EXPECT_TRUE(read({}).single_host());
}

TEST(RankInfo, UnderstandsEveryLauncher) {
  expect_place(kWeft, {"weft", 1, 3, 1, 3});
  expect_place(kTorchrun, {"torchrun", 5, 8, 1, 4});
  expect_place(kOpenMpi, {"openmpi", 1, 2, 1, 2});
  expect_place(kMpich, {"mpich", 0, 2, 0, 2});
  expect_place(kSlurm, {"slurm", 3, 4, 1, 2});
}

TEST(RankInfo, KnowsWhereRankZeroListens) {
  EXPECT_EQ(read(kTorchrun).master_addr, "node0");
  EXPECT_EQ(read(kTorchrun).master_port, 29500);
  EXPECT_FALSE(read(kTorchrun).single_host());
  EXPECT_EQ(read(kOpenMpi).master_addr, "");
  EXPECT_TRUE(read(kOpenMpi).single_host());
}

TEST(RankInfo, FindsTheFirstNodeOfASlurmStep) {
  const Environment step = with(kSlurm, "SLURM_STEP_NODELIST", "node[07-08]");
  EXPECT_EQ(read(step).master_addr, "node07");
  EXPECT_EQ(read(step).master_port, read(with(step, "SLURM_PROCID", "0")).master_port);
  EXPECT_NE(read(step).master_port, read(with(step, "SLURM_JOB_ID", "78")).master_port);
  EXPECT_EQ(read(with(step, "MASTER_PORT", "5000")).master_port, 5000);
  const Environment told = with(with(step, "MASTER_ADDR", "far"), "MASTER_PORT", "5000");
  EXPECT_EQ(read(told).master_addr, "far");
  const Environment one_node = with(step, "SLURM_STEP_TASKS_PER_NODE", "4");
  EXPECT_EQ(read(one_node).master_addr, "");
}

TEST(RankInfo, TakesRanksStartedByHand) {
  const Environment by_hand = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  expect_place(with(by_hand, "WEFT_JOB_ID", "mine"), {"torchrun", 1, 2, 1, 2});
  EXPECT_EQ(read(with(by_hand, "WEFT_JOB_ID", "mine")).job_id, "mine");
  const Environment here = with(with(by_hand, "MASTER_ADDR", "localhost"), "MASTER_PORT", "5000");
  expect_place(here, {"torchrun", 1, 2, 1, 2});
  expect_place(with(here, "MASTER_ADDR", "far"), {"torchrun", 1, 2, 0, 1});
  EXPECT_EQ(environment_refusal(by_hand),
            "dist.rank_info: RANK and WORLD_SIZE are set, but where the ranks meet is not; set "
            "MASTER_ADDR and MASTER_PORT, or WEFT_JOB_ID on one host");
}

TEST(RankInfo, TakesAShellInsideASlurmJobForOneProcess) {
  for (const char* step : {"batch", "interactive", "4294967291"}) {
    expect_place(with(kSlurm, "SLURM_STEP_ID", step), {"none", 0, 1, 0, 1});
  }
  expect_place(without(kSlurm, "SLURM_STEP_ID"), {"none", 0, 1, 0, 1});
  const Environment one = with(with(with(kSlurm, "SLURM_STEP_NUM_TASKS", "1"), "SLURM_PROCID", "0"),
                               "SLURM_NTASKS", "1");
  expect_place(one, {"none", 0, 1, 0, 1});
}

TEST(RankInfo, ReadsSlurmsTasksPerNode) {
  const Environment one_node = with(kSlurm, "SLURM_STEP_TASKS_PER_NODE", "4");
  EXPECT_TRUE(read(one_node).single_host());
  const Environment uneven = with(kSlurm, "SLURM_STEP_TASKS_PER_NODE", "3,1");
  EXPECT_FALSE(read(uneven).single_host());
}

TEST(RankInfo, TellsHydraFromSlurmsOwnPmi) {
  Environment both = kSlurm;
  both.insert(kMpich.begin(), kMpich.end());
  EXPECT_EQ(read(both).launcher, "mpich");
  EXPECT_EQ(read(without(without(both, "MPI_LOCALRANKID"), "MPI_LOCALNRANKS")).launcher, "slurm");
}

TEST(RankInfo, GivesJobsDifferentNamesAndRanksTheSame) {
  EXPECT_EQ(read(kOpenMpi).job_id, read(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "0")).job_id);
  EXPECT_NE(read(kOpenMpi).job_id, read(with(kOpenMpi, "PMIX_NAMESPACE", "7")).job_id);
  EXPECT_EQ(read(kSlurm).job_id, read(with(kSlurm, "SLURM_PROCID", "0")).job_id);
  EXPECT_NE(read(kSlurm).job_id, read(with(kSlurm, "SLURM_STEP_ID", "1")).job_id);
  // Nodes may have counted different restarts.
  EXPECT_EQ(read(kTorchrun).job_id,
            read(with(kTorchrun, "TORCHELASTIC_RESTART_COUNT", "1")).job_id);
}

TEST(RankInfo, ReadsIntegersStrictly) {
  for (const char* text : {"", "x", "1x", " 1", "+1", "0x1", "1.0", "-1", "99999999999999999999"}) {
    EXPECT_EQ(environment_refusal(with(kWeft, "WEFT_RANK", text)),
              core::join("dist.rank_info: WEFT_RANK: expected an integer from 0 to 1048576, got '",
                         text, "'"));
  }
  EXPECT_EQ(environment_refusal(with(kTorchrun, "MASTER_PORT", "70000")),
            "dist.rank_info: MASTER_PORT: expected an integer from 1 to 65535, got '70000'");
}

TEST(RankInfo, RefusesWhatContradictsItself) {
  EXPECT_EQ(environment_refusal(with(kWeft, "WEFT_RANK", "3")),
            "dist.rank_info: WEFT_RANK: expected a rank below WEFT_WORLD_SIZE=3, got 3");
  EXPECT_EQ(environment_refusal(without(kTorchrun, "WORLD_SIZE")),
            "dist.rank_info: WORLD_SIZE: expected an integer, got nothing; the launcher sets it "
            "together with the other variables of the job");
  EXPECT_EQ(environment_refusal(without(kTorchrun, "MASTER_PORT")),
            "dist.rank_info: MASTER_ADDR is set without MASTER_PORT; set both or neither");
  EXPECT_EQ(environment_refusal(without(kTorchrun, "LOCAL_WORLD_SIZE")),
            "dist.rank_info: LOCAL_RANK is set without LOCAL_WORLD_SIZE; set both or neither");
  // On one host the numbers of all ranks say it.
  EXPECT_EQ(
      environment_refusal(with(without(kTorchrun, "LOCAL_WORLD_SIZE"), "MASTER_ADDR", "127.0.0.1")),
      "nothing was thrown");
  EXPECT_EQ(environment_refusal(without(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_RANK")),
            "dist.rank_info: OMPI_COMM_WORLD_LOCAL_SIZE is set without "
            "OMPI_COMM_WORLD_LOCAL_RANK; set both or neither");
  EXPECT_EQ(environment_refusal(with(kTorchrun, "LOCAL_RANK", "4")),
            "dist.rank_info: local rank: expected below 4, the ranks of this host, got 4");
  EXPECT_EQ(environment_refusal(without(kWeft, "WEFT_JOB_ID")),
            "dist.rank_info: WEFT_RANK is set without WEFT_JOB_ID; start the ranks by `weft "
            "launch`");
}

}  // namespace
}  // namespace weft::dist
