// The hierarchical backend on two real networks, and what only it promises.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/support/run_command.h"
#include "tests/support/run_ranks.h"
#include "tests/support/two_hosts.h"
#include "weft/core/error.h"
#include "weft/dist/launch/launch.h"

namespace weft::dist {
namespace {

using test::BackgroundCommand;
using test::CommandResult;

at::Tensor waves(int64_t rank, int64_t count) {
  return at::arange(count, at::kFloat).mul_(0.37).add_(static_cast<double>(rank)).sin_();
}

void expect_same_bits(const Group& group, const at::Tensor& x) {
  const at::Tensor all = group.all_gather(x.view({1, -1}), 0);
  for (int64_t rank = 0; rank < group.size(); ++rank) EXPECT_TRUE(at::equal(all[rank], all[0]));
}

// Small, where the first rank of each host talks, and large, where all do.
void expect_sums(const Group& group) {
  for (const int64_t count : {1, 576, 300'001}) {
    at::Tensor x = waves(group.rank(), count);
    at::Tensor expected = at::zeros({count});
    for (int64_t rank = 0; rank < group.size(); ++rank) expected += waves(rank, count);
    group.all_reduce(x);
    EXPECT_TRUE(at::allclose(x, expected, 1e-5, 1e-5)) << count;
    expect_same_bits(group, x);
  }
}

// A hierarchical group of four, and one of Gloo in which two hosts have a rank each.
void expect_scattered(const Group& group) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const int64_t count = 100'003;
    std::vector<at::Tensor> inputs;
    for (int64_t r = 0; r < group.size(); ++r) inputs.push_back(waves(r, count).to(dtype));
    at::Tensor sum = at::zeros({count});
    for (const at::Tensor& x : inputs) sum += x;
    std::vector<int64_t> sizes(static_cast<size_t>(group.size()), 0);
    sizes[0] = 33'333;
    sizes.back() = count - sizes[0];
    const at::Tensor own = inputs[static_cast<size_t>(group.rank())];
    const at::Tensor piece = group.reduce_scatter(own, 0, sizes);
    const auto expected = sum.to(dtype).split_with_sizes(sizes);
    EXPECT_TRUE(at::allclose(piece, expected[static_cast<size_t>(group.rank())], 1e-5, 1e-5));
  }
}

std::string backend_of(const Group& group) {
  return group.process_group()->getDefaultBackend()->getBackendName();
}

void expect_world(const World& world) {
  EXPECT_EQ(world.backend(), "hierarchical");
  EXPECT_EQ(backend_of(world.group()), "hierarchical");
  expect_sums(world.group());
  const Group low = world.make_group("low", {0, 1});
  const Group high = world.make_group("high", {2, 3});
  const Group across = world.make_group("across", {0, 3});
  const Group& pair = world.rank() < 2 ? low : high;
  EXPECT_EQ(backend_of(pair), "shm");
  expect_sums(pair);
  if (across.size() > 1) {
    EXPECT_EQ(backend_of(across), "gloo");
    expect_sums(across);
    expect_scattered(across);
  }
  expect_scattered(world.group());
}

// What this host's interfaces have sent, but for the one to itself.
int64_t bytes_sent() {
  std::ifstream table("/proc/self/net/dev");
  std::string line;
  int64_t sent = 0;
  while (std::getline(table, line)) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.substr(0, colon).ends_with("lo")) continue;
    std::istringstream columns(line.substr(colon + 1));
    std::vector<int64_t> waves{std::istream_iterator<int64_t>(columns), {}};
    sent += waves.at(8);
  }
  return sent;
}

// What crosses the network while `group`'s ranks do `call`, in elements of float32 of this host.
int64_t elements_sent(const World& world, const Group& group, const std::function<void()>& call) {
  world.group().barrier();
  const int64_t before = bytes_sent();
  world.group().barrier();
  if (group.size() > 1) call();
  world.group().barrier();
  return (bytes_sent() - before) / 4;
}

// Each rank needs its peer on the other host to get that one's piece and nothing else: half of what
// crosses in an all-reduce.
void expect_pieces_cross(const World& world) {
  constexpr int64_t kPiece = 500'000;
  for (const Group& group : {world.group(), world.make_group("apart", {0, 3})}) {
    const int64_t whole = group.size() * kPiece;
    at::Tensor x = waves(group.rank(), whole);
    at::Tensor shard = at::empty({kPiece});
    const int64_t pieces = world.group().size() == group.size() ? 2 : 1;
    const int64_t sent = elements_sent(world, group, [&] { group.reduce_scatter_into(shard, x); });
    EXPECT_GE(sent, pieces * kPiece);
    EXPECT_LT(sent, pieces * kPiece * 3 / 2);
    EXPECT_GE(elements_sent(world, group, [&] { group.all_reduce(x); }), 2 * pieces * kPiece);
  }
}

TEST(HierarchicalBackend, GivesAllRanksTheSameBits) {
  test::run_ranks(4, [](World& world) { expect_world(world); },
                  {.backend = "hierarchical", .variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}});
}

TEST(HierarchicalProgram, DISABLED_Sums) {
  const World world = World::from_env();
  expect_world(world);
  expect_pieces_cross(world);
  std::printf("rank %d is done\n", world.rank());
}

// What `weft launch` does with its flags.
TEST(HierarchicalProgram, DISABLED_Launches) {
  LaunchOptions options;
  options.num_ranks = 2;
  options.num_hosts = 2;
  options.host = std::getenv("WEFT_HOST") == test::TwoHosts::name(1) ? 1 : 0;
  options.address = test::TwoHosts::address();
  options.port = test::TwoHosts::port();
  options.command = {"/proc/self/exe", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
                     "--gtest_filter=HierarchicalProgram.DISABLED_Sums"};
  std::exit(launch(options));
}

TEST(HierarchicalBackend, ReducesBetweenNetworkNamespaces) {
  const test::TwoHosts hosts;
  if (!hosts.problem().empty()) GTEST_SKIP() << hosts.problem();
  const std::vector<std::string> program = {std::filesystem::read_symlink("/proc/self/exe"),
                                            "--gtest_also_run_disabled_tests",
                                            "--gtest_filter=HierarchicalProgram.DISABLED_Launches"};
  BackgroundCommand right(hosts.on(1, program));
  BackgroundCommand left(hosts.on(0, program));
  const CommandResult of_left = left.finish();
  const CommandResult of_right = right.finish();
  EXPECT_EQ(of_left.status, 0) << of_left.out << of_left.err;
  EXPECT_EQ(of_right.status, 0) << of_right.out << of_right.err;
  for (const char* rank : {"0", "1"}) {
    EXPECT_NE(of_left.out.find(core::join("rank ", rank, " is done")), std::string::npos);
  }
  for (const char* rank : {"2", "3"}) {
    EXPECT_NE(of_right.out.find(core::join("rank ", rank, " is done")), std::string::npos);
  }
}

}  // namespace
}  // namespace weft::dist
