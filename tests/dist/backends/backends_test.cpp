#include "weft/dist/backends/backends.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/dist/launch/launch.h"

namespace weft::dist {
namespace {

RankInfo on_one_host(int ranks) {
  RankInfo info;
  info.size = info.local_size = ranks;
  return info;
}

std::string backend_refusal(const std::string& name) {
  try {
    return std::string("found ") + find_backend(name, on_one_host(2)).name;
  } catch (const core::ConfigError& error) {
    return error.what();
  }
}

std::string names() {
  std::string text;
  for (const BackendRow& row : backend_table()) text += core::join(row.name, ", ");
  return text + "auto";
}

bool is_built(const std::string& name) {
  for (const BackendRow& row : backend_table()) {
    if (name == row.name) return true;
  }
  return false;
}

TEST(Backends, SaysWhatABuildWithoutMpiLacks) {
  const std::string lacks = core::join(
      "dist.World: backend: this build has no mpi backend: MPI was not found when it was built; "
      "install libopenmpi-dev and build again, or use one of: ",
      names());
  EXPECT_EQ(backend_refusal("mpi"), is_built("mpi") ? "found mpi" : lacks);
  LaunchOptions options;
  options.backend = "mpi";
  options.command = {"true"};
  if (is_built("mpi")) return;
  try {
    launch(options);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const core::ConfigError& error) {
    EXPECT_EQ(error.what(), lacks);
  }
}

TEST(Backends, SaysWhatABuildWithoutNcclLacks) {
  if (is_built("nccl")) GTEST_SKIP() << "this build has NCCL";
  EXPECT_EQ(backend_refusal("nccl"),
            core::join("dist.World: backend: this build has no nccl backend: it was built without "
                       "CUDA and NCCL; "
                       "configure with -DWEFT_NCCL=ON and build again, or use one of: ",
                       names()));
}

TEST(Backends, ListsTheTableForAnUnknownName) {
  EXPECT_EQ(backend_refusal("ring"),
            core::join("dist.World: backend: this build has no ring backend; use "
                       "one of: ",
                       names()));
}

TEST(Backends, AreTheBuiltOnesOfThoseThatWeftKnows) {
  std::vector<std::string> built, rows;
  for (const BackendName& backend : known_backends()) {
    if (backend.is_built) built.push_back(backend.name);
  }
  for (const BackendRow& row : backend_table()) rows.push_back(row.name);
  EXPECT_EQ(rows, built);
  EXPECT_EQ(backend_choices(), "auto, nccl, shm, hierarchical, mpi or gloo");
}

TEST(Backends, SayWhatTheyAskOfTheLauncher) {
  for (const char* name : {"auto", "shm", "hierarchical", "gloo"}) {
    EXPECT_FALSE(launch_needs(name).mpirun_places || launch_needs(name).own_program) << name;
  }
  if (is_built("mpi")) {
    EXPECT_TRUE(launch_needs("mpi").mpirun_places);
    EXPECT_FALSE(launch_needs("mpi").own_program);
  }
  EXPECT_THROW(launch_needs("ring"), core::ConfigError);
}

TEST(Backends, BetweenHostsAreTheFirstForAllNetworks) {
  for (const BackendRow& row : backend_table()) {
    const bool expected = std::string(row.name) == "mpi" || std::string(row.name) == "gloo";
    EXPECT_EQ(row.is_plain, expected) << row.name;
  }
}

TEST(Backends, TakesSharedMemoryInsideHostsByItself) {
  RankInfo info = on_one_host(4);
  info.launcher = "openmpi";
  EXPECT_STREQ(find_backend("auto", info).name, "shm");
  info.local_size = 2;
  EXPECT_STREQ(find_backend("auto", info).name, "hierarchical");
}

}  // namespace
}  // namespace weft::dist
