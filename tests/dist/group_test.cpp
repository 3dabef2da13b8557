#include "weft/dist/group.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/dist/oracle.h"
#include "tests/support/backends.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist/world.h"
#include "weft/shard/split.h"

namespace weft::dist {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};

// What Gloo reduces of itself.
bool gloo_reduces(at::ScalarType dtype) { return dtype != at::kShort && dtype != at::kBool; }

bool is_defined(at::ScalarType dtype, ReduceOp op) {
  if (op == ReduceOp::kAverage) return c10::isFloatingType(dtype);
  return dtype != at::kBool || op == ReduceOp::kMin || op == ReduceOp::kMax;
}

void expect_all_reduce(const Group& group, at::IntArrayRef shape, at::ScalarType dtype, ReduceOp op,
                       bool exact) {
  const auto inputs = test::inputs_of(static_cast<int>(group.size()), shape, dtype, exact);
  const at::Tensor expected = test::reduced(inputs, op);
  const at::Tensor& own = inputs[static_cast<size_t>(group.rank())];
  at::Tensor dense = own.clone();
  group.all_reduce(dense, op);
  EXPECT_TRUE(at::equal(dense, expected)) << dtype << shape << " op " << static_cast<int>(op);
  at::Tensor strided = test::strided_copy(own);
  group.all_reduce(strided, op);
  EXPECT_TRUE(at::equal(strided, expected)) << "strided " << dtype << shape;
}

// Only shm adds in the order of the ranks; `exact` are numbers for which the order is all one.
void expect_all_reduces(const Group& group, bool gloo, bool exact) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kChar,
                                     at::kByte, at::kShort, at::kInt, at::kLong, at::kBool}) {
    if (gloo && !gloo_reduces(dtype)) continue;
    for (const ReduceOp op : kOps) {
      if (!is_defined(dtype, op)) continue;
      for (const int64_t count : {0, 1, 7, 4099}) {
        expect_all_reduce(group, {count}, dtype, op, exact);
      }
    }
  }
  // Larger than a chunk of shared memory, and not a multiple of anything.
  expect_all_reduce(group, {401, 503}, at::kFloat, ReduceOp::kSum, exact);
  expect_all_reduce(group, {401, 503}, at::kBFloat16, ReduceOp::kSum, exact);
  expect_all_reduce(group, {70'001}, at::kDouble, ReduceOp::kAverage, exact);
}

TEST(Group, AllReduceEqualsTheReductionOfTheWhole) {
  for (const char* backend : test::cpu_backends()) {
    for (int n = 1; n <= 4; ++n) {
      test::run_ranks(n,
                      [&](World& world) {
                        const std::string name = backend;
                        expect_all_reduces(world.group(), name == "gloo", name != "shm");
                      },
                      {.backend = backend});
    }
  }
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

// Lengths along a dimension that differ between ranks, one of them zero where there are three.
std::vector<int64_t> uneven_sizes(int n) {
  std::vector<int64_t> sizes;
  for (int r = 0; r < n; ++r) sizes.push_back(r == 2 ? 0 : 3 + 2 * r);
  return sizes;
}

void expect_all_gather(const Group& group, int64_t dim, int64_t other, at::ScalarType dtype) {
  const auto n = static_cast<int>(group.size());
  const std::vector<int64_t> sizes = uneven_sizes(n);
  std::vector<at::Tensor> shards;
  for (int r = 0; r < n; ++r) {
    std::vector<int64_t> shape = {other, 2, 5};
    shape[static_cast<size_t>(dim)] = sizes[static_cast<size_t>(r)];
    shards.push_back(test::input_of(r, shape, dtype, false));
  }
  const at::Tensor expected = at::cat(shards, dim);
  const at::Tensor& own = shards[static_cast<size_t>(group.rank())];
  EXPECT_TRUE(at::equal(group.all_gather(own, dim), expected)) << dtype << " dim " << dim;
  EXPECT_TRUE(at::equal(group.all_gather(test::strided_copy(own), dim - 3, sizes), expected));
}

void expect_reduce_scatter(const Group& group, int64_t dim, at::ScalarType dtype, bool exact) {
  const auto n = static_cast<int>(group.size());
  std::vector<int64_t> shape = {11, 13, 17};
  const at::Tensor sum = test::reduced(test::inputs_of(n, shape, dtype, exact), ReduceOp::kSum);
  const at::Tensor own = test::input_of(static_cast<int>(group.rank()), shape, dtype, exact);
  const shard::Range balanced = shard::part(shape[static_cast<size_t>(dim)], n, group.rank());
  EXPECT_TRUE(
      at::equal(group.reduce_scatter(own, dim), sum.narrow(dim, balanced.start, balanced.length)));
  std::vector<int64_t> sizes(static_cast<size_t>(n), 0);
  sizes[0] = 1;
  sizes.back() += shape[static_cast<size_t>(dim)] - 1;
  const at::Tensor piece = group.reduce_scatter(test::strided_copy(own), dim - 3, sizes);
  const int64_t start = group.rank() == 0 ? 0 : 1;
  EXPECT_TRUE(at::equal(piece, sum.narrow(dim, start, sizes[static_cast<size_t>(group.rank())])));
}

void expect_broadcasts(const Group& group) {
  for (int64_t root = 0; root < group.size(); ++root) {
    for (const int64_t count : {0, 5, 200'003}) {
      const at::Tensor source = test::input_of(static_cast<int>(root), {count}, at::kFloat, false);
      at::Tensor x = group.rank() == root ? source.clone() : at::zeros({count});
      group.broadcast(x, root);
      EXPECT_TRUE(at::equal(x, source)) << "root " << root << " count " << count;
      at::Tensor strided = test::strided_copy(group.rank() == root ? source : at::zeros({count}));
      group.broadcast(strided, root);
      EXPECT_TRUE(at::equal(strided, source));
    }
  }
}

TEST(Group, GathersScattersAndBroadcastsAsOnTheWhole) {
  for (const char* backend : test::cpu_backends()) {
    const bool exact = std::string(backend) != "shm";
    for (int n = 1; n <= 4; ++n) {
      test::run_ranks(
          n,
          [&](World& world) {
            const Group& group = world.group();
            for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kByte, at::kLong}) {
              for (const int64_t dim : {0, 1, 2}) expect_all_gather(group, dim, 3, dtype);
              expect_all_gather(group, 0, 0, dtype);
              for (const int64_t dim : {0, 1, 2}) expect_reduce_scatter(group, dim, dtype, exact);
            }
            expect_broadcasts(group);
            group.barrier();
          },
          {.backend = backend});
    }
  }
}

// All send first, more than any buffer holds.
void pass_around(const Group& group, int64_t count) {
  const int64_t n = group.size();
  const at::Tensor own = test::input_of(static_cast<int>(group.rank()), {count}, at::kFloat, false);
  group.send(own, (group.rank() + 1) % n);
  const int64_t source = (group.rank() + n - 1) % n;
  at::Tensor x = test::strided_copy(at::zeros({count}));
  group.receive(x, source);
  EXPECT_TRUE(at::equal(x, test::input_of(static_cast<int>(source), {count}, at::kFloat, false)));
}

TEST(Group, RanksMayAllSendBeforeTheyReceive) {
  for (const char* backend : test::cpu_backends()) {
    test::run_ranks(3,
                    [&](World& world) {
                      for (const int64_t count : {0, 1, 1'000'003, 2})
                        pass_around(world.group(), count);
                      world.group().barrier();
                    },
                    {.backend = backend});
  }
}

TEST(Group, SubGroupsWorkBesideEachOther) {
  for (const char* backend : test::cpu_backends()) {
    test::run_ranks(4,
                    [&](World& world) {
                      const Group even = world.make_group("even", {0, 2});
                      const Group odd = world.make_group("odd", {1, 3});
                      const Group first = world.make_group("first", {0, 1, 2});
                      const Group& mine = world.rank() % 2 == 0 ? even : odd;
                      EXPECT_EQ((world.rank() % 2 == 0 ? odd : even).size(), 1);
                      EXPECT_EQ(first.size(), world.rank() == 3 ? 1 : 3);
                      for (int i = 0; i < 3; ++i) {
                        at::Tensor x = at::full({1000}, world.rank(), at::kFloat);
                        mine.all_reduce(x);
                        EXPECT_EQ(x[0].item<float>(),
                                  static_cast<float>(2 + 2 * (world.rank() % 2)));
                        at::Tensor y = at::full({3}, world.rank(), at::kLong);
                        first.all_reduce(y, ReduceOp::kMax);
                        EXPECT_EQ(y[2].item<int64_t>(), world.rank() == 3 ? 3 : 2);
                      }
                      world.group().barrier();
                    },
                    {.backend = backend});
  }
}

TEST(Group, MoreRanksThanProcessorsGetTheSameSums) {
  test::run_ranks(8, [](World& world) {
    for (int i = 0; i < 20; ++i) {
      expect_all_reduce(world.group(), {1000 + i}, at::kFloat, ReduceOp::kSum, false);
    }
    expect_all_reduce(world.group(), {300'001}, at::kBFloat16, ReduceOp::kSum, false);
  });
}

template <class Error, class Function>
std::string message_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
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
  test::run_ranks(2, [](World& world) {
    at::Tensor x = at::ones({10 + 2 * world.rank()});
    const std::string message = message_of<core::CommError>([&] { world.group().all_reduce(x); });
    EXPECT_NE(message.find("dist.Group: group world: rank 0 (pid "), std::string::npos) << message;
    EXPECT_NE(message.find(") called all_reduce of Float[10]"), std::string::npos) << message;
    EXPECT_NE(message.find(") called all_reduce of Float[12]"), std::string::npos) << message;
    // The group is of no use any more, and says so again.
    at::Tensor y = at::ones({1});
    EXPECT_EQ(message_of<core::CommError>([&] { world.group().all_reduce(y); }), message);
  });
}

TEST(Group, ChecksThatTheRanksAgree) {
  for (const char* backend : test::cpu_backends()) {
    test::run_ranks(
        2,
        [](World& world) {
          world.group().check_agreement("model", "same");
          world.group().check_agreement("model", "");
          const std::string own = world.rank() == 0 ? "a.gguf" : "bb.gguf";
          EXPECT_EQ(message_of<core::CommError>(
                        [&] { world.group().check_agreement("model file", own); }),
                    "dist.Group: model file: the ranks of group world disagree: rank 0: 'a.gguf', "
                    "rank 1: 'bb.gguf'; give all of them the same");
        },
        {.backend = backend});
  }
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

}  // namespace
}  // namespace weft::dist
