#include "weft/dist/rendezvous/host_place.h"

#include <gtest/gtest.h>

#include <map>

#include "weft/core/error.h"
#include "weft/dist/rendezvous/slurm.h"

namespace weft::dist {
namespace {

using Variables = std::map<std::string, std::string>;

std::optional<HostPlace> read_place(const Variables& variables) {
  return host_place_from_env([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

void expect_host_place(const Variables& variables, const HostPlace& expected) {
  const auto place = read_place(variables);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->source, expected.source);
  EXPECT_EQ(place->num_hosts, expected.num_hosts);
  EXPECT_EQ(place->host, expected.host);
  EXPECT_EQ(place->address, expected.address);
  EXPECT_EQ(place->port, expected.port);
}

// As `srun -N 2 --ntasks-per-node=1` sets them on the second node.
const Variables kStep = {{"SLURM_JOB_ID", "77"},        {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "1"},         {"SLURM_NTASKS", "2"},
                         {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NUM_NODES", "2"},
                         {"SLURM_NODEID", "1"},         {"SLURM_STEP_NODELIST", "node[07-08]"}};
const Variables kLeaderWorkerSet = {{"LWS_LEADER_ADDRESS", "serve-0.serve.default"},
                                    {"LWS_GROUP_SIZE", "3"},
                                    {"LWS_WORKER_INDEX", "2"}};
const Variables kJobSet = {{"JOB_COMPLETION_INDEX", "1"},
                           {"WEFT_HOSTS", "4"},
                           {"JOBSET_NAME", "train"},
                           {"REPLICATED_JOB_NAME", "workers"}};

Variables with_variable(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

TEST(HostPlace, IsWhatTheClustersManagerSays) {
  expect_host_place(kStep, {2, 1, "node07", 20'000 + 77 * 31, "SLURM"});
  expect_host_place(with_variable(kStep, "MASTER_PORT", "5000"), {2, 1, "node07", 5000, "SLURM"});
  expect_host_place(kLeaderWorkerSet, {3, 2, "serve-0.serve.default", 29'500, "LeaderWorkerSet"});
  expect_host_place(kJobSet, {4, 1, "train-workers-0-0.train", 29'500, "JobSet"});
}

TEST(HostPlace, IsNotSaidOfOneHostOrInsideARank) {
  EXPECT_FALSE(read_place({}).has_value());
  EXPECT_FALSE(read_place(with_variable(kStep, "SLURM_STEP_ID", "batch")).has_value());
  EXPECT_FALSE(read_place(with_variable(kStep, "SLURM_STEP_NUM_TASKS", "8")).has_value());
  EXPECT_FALSE(read_place(with_variable(kLeaderWorkerSet, "LWS_GROUP_SIZE", "1")).has_value());
  for (const Variables& each : {kStep, kLeaderWorkerSet, kJobSet}) {
    EXPECT_FALSE(read_place(with_variable(each, "WEFT_RANK", "0")).has_value());
  }
}

TEST(HostPlace, RefusesAHostBeyondTheLast) {
  try {
    read_place(with_variable(kLeaderWorkerSet, "LWS_WORKER_INDEX", "3"));
    FAIL();
  } catch (const core::ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "dist.host_place: LeaderWorkerSet says that this is host 3, expected below 3, the "
                 "hosts of the job");
  }
}

TEST(SlurmHosts, BeginWithTheFirstOfTheList) {
  const std::map<std::string, std::string> cases = {
      {"node7", "node7"}, {"node[03-12,17],gpu1", "node03"},
      {"a,b,c", "a"},     {"rack[1-2]-node[009-011]", "rack1-node009"},
      {"n[5]", "n5"},     {"n[2,9]x", "n2x"}};
  for (const auto& [list, first] : cases) EXPECT_EQ(first_slurm_host("LIST", list), first);
  for (const char* bad : {"", ",a", "node[1-3", "node[]", "node1]"}) {
    EXPECT_THROW(first_slurm_host("LIST", bad), core::ConfigError) << bad;
  }
}

}  // namespace
}  // namespace weft::dist
