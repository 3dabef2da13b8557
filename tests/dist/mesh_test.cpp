#include "weft/dist/mesh.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/dist/message_of.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"

namespace weft::dist {
namespace {

using test::message_of;

using Groups = std::vector<std::vector<int>>;

const std::vector<Axis> kAxes = {{"replica", 2}, {"data", 2}, {"model", 3}};

TEST(Mesh, PartitionsAlongOneAxis) {
  EXPECT_EQ(Mesh::partitions(kAxes, {"model"}),
            (Groups{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}}));
  EXPECT_EQ(Mesh::partitions(kAxes, {"data"}),
            (Groups{{0, 3}, {1, 4}, {2, 5}, {6, 9}, {7, 10}, {8, 11}}));
}

TEST(Mesh, PartitionsAlongSeveralAxesInTheOrderOfTheMesh) {
  const Groups expected = {{0, 3, 6, 9}, {1, 4, 7, 10}, {2, 5, 8, 11}};
  EXPECT_EQ(Mesh::partitions(kAxes, {"replica", "data"}), expected);
  EXPECT_EQ(Mesh::partitions(kAxes, {"data", "replica"}), expected);
}

TEST(Mesh, PartitionsAlongNoAxisAndAlongAll) {
  EXPECT_EQ(Mesh::partitions({{"model", 2}}, {}), (Groups{{0}, {1}}));
  EXPECT_EQ(Mesh::partitions({{"data", 2}, {"model", 2}}, {"data", "model"}),
            (Groups{{0, 1, 2, 3}}));
}

TEST(Mesh, EveryRankIsInOneGroupOfAPartition) {
  for (const auto& axes : std::vector<std::vector<std::string>>{
           {}, {"replica"}, {"data"}, {"replica", "model"}, {"replica", "data", "model"}}) {
    std::vector<int> seen;
    for (const auto& group : Mesh::partitions(kAxes, axes)) {
      seen.insert(seen.end(), group.begin(), group.end());
    }
    std::sort(seen.begin(), seen.end());
    for (int rank = 0; rank < 12; ++rank) EXPECT_EQ(seen[static_cast<size_t>(rank)], rank);
    EXPECT_EQ(seen.size(), 12U);
  }
}

TEST(Mesh, RefusesSizesThatDoNotFitAndSaysWhichDo) {
  const World world = World::from_env();
  EXPECT_EQ(message_of<core::ConfigError>([&] {
              Mesh(world, {{"data", 1}, {"model", 2}});
            }),
            "dist.Mesh: data=1 x model=2: expected 1 ranks, got 2; use e.g. data=1 x model=1");
  EXPECT_EQ(message_of<core::ConfigError>([&] {
              Mesh(world, {{"data", 0}});
            }),
            "dist.Mesh: axis data: expected a size of at least 1, got 0");
  EXPECT_EQ(message_of<core::ConfigError>([&] {
              Mesh(world, {{"data", 1}, {"data", 1}});
            }),
            "dist.Mesh: expected different names for the axes, got 'data' twice or empty");
  const Mesh mesh(world, {{"data", 1}, {"model", 1}});
  EXPECT_EQ(message_of<core::ConfigError>([&] { mesh.group({"pipe"}); }),
            "dist.Mesh: axis: expected one of data=1 x model=1, got 'pipe'");
}

TEST(Mesh, GroupsReduceOverTheirAxesOnly) {
  test::run_ranks(4, [](World& world) {
    const Mesh mesh(world, {{"data", 2}, {"pipe", 1}, {"model", 2}});
    EXPECT_EQ(mesh.coordinate("data"), world.rank() / 2);
    EXPECT_EQ(mesh.coordinate("model"), world.rank() % 2);
    EXPECT_EQ(mesh.coordinate("pipe"), 0);
    const auto sum_over = [&](const std::vector<std::string>& axes) {
      at::Tensor x = at::full({1}, world.rank(), at::kLong);
      mesh.group(axes).all_reduce(x);
      return x.item<int64_t>();
    };
    EXPECT_EQ(sum_over({"model"}), world.rank() < 2 ? 1 : 5);
    EXPECT_EQ(sum_over({"data"}), world.rank() % 2 == 0 ? 2 : 4);
    EXPECT_EQ(sum_over({"data", "model"}), 6);
    EXPECT_EQ(sum_over({"pipe"}), world.rank());
    // The second time it is the same group.
    EXPECT_EQ(mesh.group({"model"}), mesh.group({"model"}));
    EXPECT_EQ(mesh.group({"model"}).rank(), world.rank() % 2);
    EXPECT_EQ(mesh.group({"model"}).name(), "model");
  });
}

}  // namespace
}  // namespace weft::dist
