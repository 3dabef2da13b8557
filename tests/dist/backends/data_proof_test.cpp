#include "weft/dist/backends/data_proof.h"

#include <gtest/gtest.h>

#include <future>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

// What each of two ranks, threads here, says of the other; empty: nothing.
std::vector<std::string> verdicts(const std::vector<std::string>& keys) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto run = [&](int rank) -> std::string {
    auto options = c10d::ProcessGroupGloo::Options::create(20s);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    c10d::ProcessGroupGloo group(store, rank, 2, options);
    try {
      prove_key_between(group, keys[static_cast<size_t>(rank)], "HERE", 20s);
    } catch (const core::CommError& error) {
      return error.what();
    }
    return "";
  };
  auto other = std::async(std::launch::async, run, 1);
  const std::string own = run(0);
  return {own, other.get()};
}

TEST(DataProof, RanksOfOneJobBelieveEachOther) {
  EXPECT_EQ(verdicts({"the key of this job", "the key of this job"}),
            (std::vector<std::string>{"", ""}));
}

TEST(DataProof, WhoDoesNotKnowTheKeyIsNamed) {
  const std::string line =
      " of the group does not know the job's key; is it another job's, or a "
      "stranger?";
  EXPECT_EQ(verdicts({"the key of this job", "the key of another job"}),
            (std::vector<std::string>{"HERE: who answers as rank 1" + line,
                                      "HERE: who answers as rank 0" + line}));
}

}  // namespace
}  // namespace weft::dist
