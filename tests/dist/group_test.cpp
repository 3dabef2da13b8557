#include "weft/dist/group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/dist/message_of.h"
#include "tests/dist/oracle.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist/world.h"

namespace weft::dist {
namespace {

using test::message_of;

void expect_sum(const Group& group, at::IntArrayRef shape, at::ScalarType dtype) {
  const auto inputs = test::inputs_of(static_cast<int>(group.size()), shape, dtype, false);
  at::Tensor x = inputs[static_cast<size_t>(group.rank())].clone();
  group.all_reduce(x);
  EXPECT_TRUE(at::equal(x, test::reduced(inputs, ReduceOp::kSum))) << dtype << shape;
}

TEST(Group, AllReduceGivesAllRanksTheSameBitsEveryTime) {
  test::run_ranks(3, [](World& world) {
    at::Tensor first;
    for (int run = 0; run < 5; ++run) {
      at::Tensor x = test::input_of(world.rank(), {100'003}, at::kFloat, false);
      world.group().all_reduce(x);
      const at::Tensor all = world.group().all_gather(x.view(at::kInt).unsqueeze(0), 0);
      for (int r = 0; r < world.size(); ++r) EXPECT_TRUE(at::equal(all[r], all[0]));
      if (run == 0) first = x;
      EXPECT_TRUE(at::equal(x, first));
    }
  });
}

TEST(Group, MoreRanksThanProcessorsGetTheSameSums) {
  test::run_ranks(8, [](World& world) {
    for (int i = 0; i < 20; ++i) {
      expect_sum(world.group(), {1000 + i}, at::kFloat);
    }
    expect_sum(world.group(), {300'001}, at::kBFloat16);
  });
}

TEST(Group, RefusesWhatHasNoMeaning) {
  test::run_ranks(2, [](World& world) {
    const Group& group = world.group();
    at::Tensor flags = at::ones({2}, at::kBool);
    at::Tensor whole = at::ones({2}, at::kInt);
    at::Tensor complex = at::ones({2}, at::kComplexFloat);
    EXPECT_EQ(message_of<core::ShapeError>([&] { group.all_reduce(flags); }),
              "dist.Group.all_reduce: expected numbers for a sum, got Bool; use kMax (any) or kMin "
              "(all)");
    EXPECT_EQ(message_of<core::ShapeError>([&] { group.all_reduce(whole, ReduceOp::kAverage); }),
              "dist.Group.all_reduce: expected a floating type for an average, got Int; sum and "
              "divide as you mean it");
    EXPECT_NE(message_of<core::ShapeError>([&] { group.all_reduce(complex); }).find("ComplexFloat"),
              std::string::npos);
    EXPECT_EQ(message_of<core::ShapeError>([&] { group.all_gather(whole, 1); }),
              "dist.Group.all_gather: expected a dim from -1 to 0, got 1");
    EXPECT_EQ(message_of<core::ShapeError>([&] { group.broadcast(whole, 2); }),
              "dist.Group.broadcast: expected a root below 2, got 2");
    EXPECT_EQ(message_of<core::ShapeError>([&] {
                group.reduce_scatter(whole, 0, {1, 2});
              }),
              "dist.Group.reduce_scatter: expected sizes that sum to 2, got [1, 2]");
    EXPECT_EQ(message_of<core::ShapeError>([&] { group.send(whole, world.rank()); }),
              core::join("dist.Group.send: expected another rank of group world below 2, got ",
                         world.rank()));
  });
}

TEST(Group, TellsWhichRankCalledWhatWhenCallsDiffer) {
  const auto differ = [](World& world) {
    at::Tensor x = at::ones({10 + 2 * world.rank()});
    const std::string message = message_of<core::CommError>([&] { world.group().all_reduce(x); });
    EXPECT_NE(message.find("dist.Group: group world: rank 0 (pid "), std::string::npos) << message;
    EXPECT_NE(message.find(") called all_reduce of Float[10]"), std::string::npos) << message;
    EXPECT_NE(message.find(") called all_reduce of Float[12]"), std::string::npos) << message;
    // The group is of no use any more, and says so again.
    at::Tensor y = at::ones({1});
    EXPECT_EQ(message_of<core::CommError>([&] { world.group().all_reduce(y); }), message);
  };
  // shm notices the number of elements by itself.
  test::run_ranks(2, differ, {.variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}});
}

TEST(Group, OfOneIsANoOperation) {
  const Group alone;
  at::Tensor x = at::arange(6).reshape({2, 3});
  const at::Tensor before = x.clone();
  alone.all_reduce(x);
  alone.broadcast(x, 0);
  alone.barrier();
  alone.check_agreement("anything", "text");
  EXPECT_TRUE(at::equal(x, before));
  EXPECT_TRUE(at::equal(alone.all_gather(x, 1), before));
  EXPECT_TRUE(at::equal(alone.reduce_scatter(x, 0), before));
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(alone.process_group(), nullptr);
}

TEST(Group, CountsWhatGoesThroughIt) {
  test::run_ranks(2, [](const World& world) {
    const Group group = world.make_group("counted", {0, 1});
    at::Tensor x = at::ones({6});
    group.all_reduce(x);
    group.all_reduce(x);
    group.all_gather(at::ones({2, 3}, at::kHalf), 1);
    at::Tensor shard = at::empty({3});
    group.reduce_scatter_into(shard, x);
    group.all_gather_into(x, shard);
    const Group copy = group;
    EXPECT_EQ(copy.traffic().all_reduce, (OperationTraffic{2, 48}));
    EXPECT_EQ(copy.traffic().all_gather, (OperationTraffic{2, 48}));
    EXPECT_EQ(copy.traffic().reduce_scatter, (OperationTraffic{1, 24}));
    EXPECT_EQ(copy.traffic().broadcast, OperationTraffic());
    EXPECT_EQ(message_of<core::ShapeError>([&] { group.all_gather_into(x, at::ones({4})); }),
              "dist.Group.all_gather_into: expected a whole of 2 x 4 elements, got 6");
  });
}

}  // namespace
}  // namespace weft::dist
