// The mpi backend: what it does beyond what all backends are tested for.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <regex>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/dist/oracle.h"
#include "tests/support/backends.h"
#include "tests/support/run_command.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist/launch/launch.h"
#include "weft/dist/launch/status_page.h"
#include "weft/dist/world.h"

namespace weft::dist {
namespace {

using Tensors = std::vector<at::Tensor>;

class MpiBackend : public ::testing::Test {
 protected:
  void SetUp() override { test::skip_or_fail_without("mpi"); }

  static void on_ranks(int n, const std::function<void(World&)>& body) {
    // The checking mode refuses sizes that differ and messages from any source.
    test::run_ranks(n, body, {.backend = "mpi", .variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}});
  }
};

// Whether this process has a file in its memory whose path holds `text`.
bool has_loaded(const std::string& text) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

TEST_F(MpiBackend, IsLoadedWhenItIsAskedFor) {
  test::run_ranks(
      2, [](World&) { EXPECT_FALSE(has_loaded("/libmpi") || has_loaded("/libweft_mpi.so")); },
      {.backend = "shm"});
  on_ranks(2, [](World&) {
    EXPECT_TRUE(has_loaded("/libmpi"));
    EXPECT_TRUE(has_loaded("/libweft_mpi.so"));
  });
}

// A program that needs the backend, as weft's own ends with an error.
TEST(MpiProgram, DISABLED_MakesAWorld) {
  try {
    World::from_env();
  } catch (const core::Error& error) {
    const std::string line = core::join("weft: ", error.type(), ": ", error.what());
    if (should_report(line)) std::fprintf(stderr, "%s\n", line.c_str());
    std::fflush(nullptr);
    _exit(error.exit_code());
  }
}

// In a place where files of these names are found first that are no libraries.
test::CommandResult launch_without(const std::vector<std::string>& libraries) {
  const std::string folder = core::join(::testing::TempDir(), "weft-no-libraries-", getpid());
  std::filesystem::create_directory(folder);
  for (const std::string& library : libraries) std::ofstream(folder + "/" + library) << "text\n";
  LaunchOptions options;
  options.num_ranks = 3;
  options.backend = "mpi";
  options.command = {"sh",
                     "-c",
                     "LD_LIBRARY_PATH=" + folder + " exec \"$@\"",
                     "sh",
                     core::join("/proc/", getpid(), "/exe"),
                     "--gtest_also_run_disabled_tests",
                     "--gtest_brief=1",
                     "--gtest_filter=MpiProgram.DISABLED_MakesAWorld"};
  const auto result = test::run_forked([&] { return launch(options); });
  std::filesystem::remove_all(folder);
  return result;
}

TEST_F(MpiBackend, SaysInOneLineWhichLibraryIsMissing) {
  const std::vector<std::vector<std::string>> cases = {{"libweft_mpi.so"},
                                                       {"libmpi.so.40", "libmpich.so.12"}};
  for (const auto& libraries : cases) {
    const auto result = launch_without(libraries);
    EXPECT_EQ(result.status, 2) << libraries[0];
    EXPECT_TRUE(std::regex_match(
        result.err,
        std::regex("weft: ConfigError: dist.World: backend mpi: expected libweft_mpi.so and MPI, "
                   "got: [^\n]*lib(weft_)?mpi[^\n]*; install both, or use another backend\n")))
        << result.err;
  }
}

at::Tensor mpi_input(int rank, int64_t count) {
  return test::input_of(rank, {count}, at::kFloat, true);
}

// Values that no half type adds up exactly.
at::Tensor halves(int rank, int64_t count, at::ScalarType dtype) {
  return (at::arange(count, at::kFloat) * 0.37F + static_cast<float>(rank) * 1.7F + 0.01F)
      .sin()
      .mul(100)
      .to(dtype);
}

at::Tensor float_sum(int ranks, int64_t count, at::ScalarType dtype) {
  at::Tensor sum = at::zeros({count});
  for (int r = 0; r < ranks; ++r) sum += halves(r, count, dtype).to(at::kFloat);
  return sum;
}

// At most one representable number away from the rounded sum: bits of one sign count up with size.
void expect_within_one_rounding(const at::Tensor& got, const at::Tensor& sum) {
  const at::Tensor wanted = sum.to(got.scalar_type());
  const at::Tensor apart =
      (got.view(at::kShort).to(at::kInt) - wanted.view(at::kShort).to(at::kInt)).abs();
  EXPECT_LE(apart.max().item<int>(), 1) << got.scalar_type();
}

TEST_F(MpiBackend, SumsTwoHalvesExactlyAsFloatsRoundedOnce) {
  on_ranks(2, [](World& world) {
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      for (const int64_t count : {1, 1000, 2'500'000}) {
        at::Tensor x = halves(world.rank(), count, dtype);
        world.group().all_reduce(x);
        EXPECT_TRUE(at::equal(x, float_sum(2, count, dtype).to(dtype)));
      }
    }
  });
}

TEST_F(MpiBackend, SumsHalvesOfManyRanksWithinOneRounding) {
  on_ranks(4, [](World& world) {
    const int64_t count = 100'003;
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      const at::Tensor sum = float_sum(4, count, dtype);
      at::Tensor x = halves(world.rank(), count, dtype);
      world.group().all_reduce(x);
      expect_within_one_rounding(x, sum);
      Tensors reduced = {halves(world.rank(), count, dtype)};
      c10d::ReduceOptions options;
      options.rootRank = 3;
      world.group().process_group()->reduce(reduced, options)->wait();
      if (world.rank() == 3) expect_within_one_rounding(reduced[0], sum);
      const at::Tensor piece = world.group().reduce_scatter(halves(world.rank(), count, dtype), 0,
                                                            {50'000, 0, 3, 50'000});
      const int64_t starts[] = {0, 50'000, 50'000, 50'003};
      const int64_t start = starts[world.rank()];
      if (piece.numel() != 0)
        expect_within_one_rounding(piece, sum.narrow(0, start, piece.size(0)));
    }
  });
}

TEST_F(MpiBackend, GivesAllRanksTheSameBits) {
  on_ranks(3, [](World& world) {
    at::Tensor x = halves(world.rank(), 300'000, at::kFloat);
    world.group().all_reduce(x);
    const at::Tensor all = world.group().all_gather(x.unsqueeze(0), 0);
    EXPECT_TRUE(at::equal(all[0], all[1]) && at::equal(all[0], all[2]));
  });
}

TEST_F(MpiBackend, LetsNaNWinOnAllRanks) {
  on_ranks(2, [](World& world) {
    for (const auto op : {ReduceOp::kMin, ReduceOp::kMax}) {
      at::Tensor x = at::ones({2});
      x[world.rank()] = NAN;
      world.group().all_reduce(x, op);
      EXPECT_TRUE(x.isnan().all().item<bool>());
    }
  });
}

TEST_F(MpiBackend, RefusesComplexSums) {
  on_ranks(2, [](World& world) {
    at::Tensor x = at::ones({2}, at::kComplexFloat);
    try {
      world.group().all_reduce(x);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const core::ShapeError& error) {
      EXPECT_EQ(std::string(error.what()).rfind("dist.mpi: sum of ComplexFloat: expected", 0), 0U)
          << error.what();
    }
    world.group().barrier();
  });
}

TEST_F(MpiBackend, MakesGroupsOfAnyRanks) {
  on_ranks(4, [](World& world) {
    for (const auto& ranks : {std::vector<int>{0, 2}, {1, 3}, {1, 2, 3}, {0, 1, 2, 3}, {3}}) {
      const Group group = world.make_group("some", ranks);
      const bool is_in = std::find(ranks.begin(), ranks.end(), world.rank()) != ranks.end();
      EXPECT_EQ(group.size(), is_in ? static_cast<int64_t>(ranks.size()) : 1);
      at::Tensor x = at::full({5}, world.rank(), at::kLong);
      group.all_reduce(x);
      int64_t sum = world.rank();
      if (is_in) sum = std::accumulate(ranks.begin(), ranks.end(), int64_t{0});
      EXPECT_EQ(x[4].item<int64_t>(), sum);
    }
  });
}

TEST_F(MpiBackend, DoesQueuedOperationsInOrderWhileTheCallerGoesOn) {
  on_ranks(3, [](World& world) {
    const Group other = world.make_group("other", {0, 1, 2});
    at::Tensor x = at::ones({50'000});
    at::Tensor y = at::full({1000}, world.rank(), at::kFloat);
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < 10; ++i) {
      Tensors list = {x};
      works.push_back(world.group().process_group()->allreduce(list));
      other.all_reduce(y, ReduceOp::kMax);
    }
    world.group().barrier();
    for (const auto& work : works) EXPECT_TRUE(work->isCompleted());
    EXPECT_EQ(x[49'999].item<float>(), 59'049.0F);
    EXPECT_EQ(y[999].item<float>(), 2.0F);
  });
}

TEST_F(MpiBackend, GathersAndScattersTensorsOfDifferentSizes) {
  on_ranks(3, [](World& world) {
    c10d::ProcessGroup& group = *world.group().process_group();
    const int rank = world.rank();
    Tensors own = {mpi_input(rank, 70'000 * rank)};
    std::vector<Tensors> all(1);
    for (int r = 0; r < 3; ++r) all[0].push_back(at::zeros({70'000 * r}));
    group.allgather(all, own)->wait();
    for (int r = 0; r < 3; ++r) {
      EXPECT_TRUE(at::equal(all[0][static_cast<size_t>(r)], mpi_input(r, 70'000 * r)));
    }
    std::vector<Tensors> pieces;
    if (rank == 1) pieces = {{mpi_input(0, 0), mpi_input(1, 5), mpi_input(2, 90'000)}};
    const int64_t sizes[] = {0, 5, 90'000};
    Tensors piece = {test::strided_copy(at::zeros({sizes[rank]}))};
    c10d::ScatterOptions options;
    options.rootRank = 1;
    group.scatter(piece, pieces, options)->wait();
    EXPECT_TRUE(at::equal(piece[0], mpi_input(rank, sizes[rank])));
  });
}

// Rank 0's outputs lie one after the other, those of rank 1 do not.
TEST_F(MpiBackend, GathersWhereverTheOutputsOfEachRankLie) {
  on_ranks(2, [](World& world) {
    const at::Tensor whole = at::zeros({8});
    const int rank = world.rank();
    std::vector<Tensors> all = {{whole.narrow(0, rank * 4, 4), whole.narrow(0, 4 - rank * 4, 4)}};
    Tensors own = {mpi_input(rank, 4)};
    world.group().process_group()->allgather(all, own)->wait();
    EXPECT_TRUE(at::equal(all[0][0], mpi_input(0, 4)));
    EXPECT_TRUE(at::equal(all[0][1], mpi_input(1, 4)));
  });
}

// `run` has 20 bytes of this rank for 16 in the first tensor, which four more floats follow.
void expect_own_misfit(World& world,
                       const std::function<void(c10d::ProcessGroup&, at::Tensor)>& run) {
  const at::Tensor whole = at::zeros({8});
  try {
    run(*world.group().process_group(), whole.narrow(0, 0, 4));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const core::CommError& error) {
    const std::string rank = core::join("rank ", world.rank(), " \\(pid [0-9]+, host .+\\)");
    const std::regex sizes(rank + " expects 16 bytes of " + rank +
                           ", which has 20; give all ranks the same sizes");
    EXPECT_TRUE(std::regex_search(error.what(), sizes)) << error.what();
  }
  EXPECT_EQ(whole.narrow(0, 4, 4).abs().sum().item<float>(), 0.0F);
}

TEST_F(MpiBackend, AnOwnPieceThatDoesNotFitIsNotWrittenPastItsOutput) {
  on_ranks(2, [](World& world) {
    expect_own_misfit(world, [&](c10d::ProcessGroup& group, const at::Tensor& output) {
      const int own = world.rank();
      Tensors sent = {mpi_input(0, own == 0 ? 5 : 2), mpi_input(1, own == 1 ? 5 : 2)};
      Tensors got = {own == 0 ? output : at::zeros({2}), own == 1 ? output : at::zeros({2})};
      c10d::AllToAllOptions now;
      now.asyncOp = false;
      group.alltoall(got, sent, now)->wait();
    });
  });
  on_ranks(2, [](World& world) {
    expect_own_misfit(world, [&](c10d::ProcessGroup& group, const at::Tensor& output) {
      Tensors own = {mpi_input(world.rank(), 5)};
      std::vector<Tensors> all = {{at::zeros({4}), at::zeros({4})}};
      all[0][static_cast<size_t>(world.rank())] = output;
      c10d::AllgatherOptions now;
      now.asyncOp = false;
      group.allgather(all, own, now)->wait();
    });
  });
}

TEST_F(MpiBackend, MatchesMessagesByTagAndTakesThemFromAnySource) {
  on_ranks(3, [](World& world) {
    c10d::ProcessGroup& group = *world.group().process_group();
    if (world.rank() != 0) {
      Tensors first = {mpi_input(0, 1000)};
      Tensors second = {mpi_input(world.rank(), 500'000)};
      group.send(first, 0, 7)->wait();
      group.send(second, 0, 9)->wait();
    } else {
      for (int i = 0; i < 2; ++i) {
        Tensors second = {at::zeros({500'000})};
        const auto work = group.recvAnysource(second, 9);
        work->wait();
        EXPECT_TRUE(at::equal(second[0], mpi_input(work->sourceRank(), 500'000)));
        Tensors first = {at::zeros({1000})};
        group.recv(first, work->sourceRank(), 7)->wait();
        EXPECT_TRUE(at::equal(first[0], mpi_input(0, 1000)));
      }
    }
    world.group().barrier();
  });
}

TEST_F(MpiBackend, NamesARankThatLeavesInTheMiddle) {
  on_ranks(2, [](World& world) {
    if (world.rank() == 1) _exit(0);
    try {
      world.group().barrier();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const core::CommError& error) {
      const std::string text = error.what();
      EXPECT_EQ(text.rfind("dist.Group: barrier #1 of group world: rank 1 (pid ", 0), 0U) << text;
      EXPECT_NE(text.find("was killed or has ended before its first operation"), std::string::npos)
          << text;
    }
    EXPECT_THROW(world.group().barrier(), core::CommError);
  });
}

}  // namespace
}  // namespace weft::dist
