// What becomes of the tests of a backend that is not there.
#include <gtest/gtest.h>

#include "tests/support/backends.h"
#include "weft/core/error.h"

namespace weft::test {
namespace {

// A misspelt name would require nothing.
TEST(RequiredBackends, OfThisRunAreBackendsThatThereAre) {
  EXPECT_NO_THROW(required_backends(required_text()));
}

TEST(RequiredBackends, RefusesNamesOfNoBackend) {
  EXPECT_EQ(required_backends("shm,gloo"), (std::vector<std::string>{"shm", "gloo"}));
  EXPECT_TRUE(required_backends("").empty());
  try {
    required_backends("shm,opmi");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const core::ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "WEFT_REQUIRE: expected backends of [nccl, shm, hierarchical, mpi, gloo] with a "
                 "comma between, "
                 "got 'opmi'");
  }
}

TEST(RequiredBackends, FailWhereTheyCannotRunAndOthersAreSkipped) {
  EXPECT_EQ(reason_to_skip("gloo"), "");
  EXPECT_EQ(reason_to_skip("carrier pigeon"), "this build has no carrier pigeon backend");
  EXPECT_EQ(required_failure("mpi", "this build has no mpi backend", "shm,mpi"),
            "WEFT_REQUIRE names mpi, but this build has no mpi backend; build with it or take it "
            "from the list");
  EXPECT_EQ(required_failure("mpi", "this build has no mpi backend", "shm"), "");
  EXPECT_EQ(required_failure("mpi", "", "mpi"), "");
}

}  // namespace
}  // namespace weft::test
