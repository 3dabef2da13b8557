// What Group promises, the same on every backend: op x dtype x number of ranks x sub-groups.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/dist/oracle.h"
#include "tests/support/backends.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist/shared_sum.h"
#include "weft/dist/world.h"
#include "weft/shard/split.h"

namespace weft::dist {
namespace {

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};
constexpr at::ScalarType kTypes[] = {at::kChar, at::kByte,     at::kShort, at::kInt,    at::kLong,
                                     at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kBool};

class Conformance : public test::OnEachBackend {
 protected:
  // On 1 to 4 ranks with their calls compared, and once as programs run, without.
  void on_all_sizes(const std::function<void(World&)>& body) const {
    for (int n = 1; n <= 4; ++n) test::run_ranks(n, body, {.backend = GetParam()});
    test::run_ranks(3, body,
                    {.backend = GetParam(), .variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}});
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Conformance, test::kEachBackend, test::backend_of);

std::string place(const Group& group, at::ScalarType dtype, at::IntArrayRef shape) {
  return core::join("group ", group.name(), ", rank ", group.rank(), " of ", group.size(), ", ",
                    dtype, " ", shape);
}

bool is_defined(at::ScalarType dtype, ReduceOp op) {
  if (op == ReduceOp::kAverage) return c10::isFloatingType(dtype);
  return dtype != at::kBool || op == ReduceOp::kMin || op == ReduceOp::kMax;
}

void expect_all_reduce(const Group& group, at::IntArrayRef shape, at::ScalarType dtype,
                       ReduceOp op) {
  SCOPED_TRACE(
      core::join("all_reduce, op ", static_cast<int>(op), ", ", place(group, dtype, shape)));
  const auto inputs = test::inputs_of(static_cast<int>(group.size()), shape, dtype, false);
  const at::Tensor& own = inputs[static_cast<size_t>(group.rank())];
  at::Tensor dense = own.clone();
  group.all_reduce(dense, op);
  EXPECT_TRUE(test::is_reduction(dense, inputs, op));
  at::Tensor strided = test::strided_copy(own);
  group.all_reduce(strided, op);
  EXPECT_TRUE(at::equal(strided, dense));
}

void expect_all_reduces(const Group& group) {
  for (const at::ScalarType dtype : kTypes) {
    for (const ReduceOp op : kOps) {
      if (!is_defined(dtype, op)) continue;
      for (const int64_t count : {0, 1, 1003}) expect_all_reduce(group, {count}, dtype, op);
    }
  }
  expect_all_reduce(group, {}, at::kFloat, ReduceOp::kSum);
  // About where shm takes another way.
  for (const int64_t count : {8'191, 24'575, 24'577}) {
    expect_all_reduce(group, {count}, at::kFloat, ReduceOp::kSum);
  }
  // Larger than what any backend moves at once, and not a multiple of anything.
  expect_all_reduce(group, {401, 503}, at::kFloat, ReduceOp::kSum);
  expect_all_reduce(group, {70'001}, at::kDouble, ReduceOp::kAverage);
  expect_all_reduce(group, {1'100'003}, at::kBFloat16, ReduceOp::kSum);
}

TEST_P(Conformance, AllReduceEqualsTheReductionOfTheWhole) {
  on_all_sizes([](World& world) { expect_all_reduces(world.group()); });
}

TEST_P(Conformance, SharedMemoryReducesInRankOrder) {
  if (GetParam() != "shm") GTEST_SKIP() << "only shm promises the order";
  test::run_ranks(4, [](World& world) {
    for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
      for (const ReduceOp op : kOps) {
        SCOPED_TRACE(core::join("op ", static_cast<int>(op), ", ", dtype));
        const auto inputs = test::inputs_of(4, {4099}, dtype, false);
        at::Tensor x = inputs[static_cast<size_t>(world.rank())].clone();
        world.group().all_reduce(x, op);
        EXPECT_TRUE(at::equal(x, test::reduced(inputs, op)));
      }
    }
  });
}

// Between other collectives, so that summands lie now here and now there.
void expect_added_sums(const Group& group, int64_t count) {
  const auto inputs = test::inputs_of(static_cast<int>(group.size()), {count}, at::kFloat, false);
  const at::Tensor& own = inputs[static_cast<size_t>(group.rank())];
  at::Tensor sum = own.clone();
  group.all_reduce(sum, ReduceOp::kSum);
  at::Tensor x = at::linspace(-2, 3, count), expected = x.clone();
  for (int i = 0; i < 3; ++i) {
    at::Tensor copy = own.clone();
    float* const room = i < 2 ? SharedSum(group).room(count) : nullptr;
    float* const from = room != nullptr ? room : copy.mutable_data_ptr<float>();
    std::copy_n(own.const_data_ptr<float>(), count, from);
    SharedSum(group).add(x, from);
    expected += sum;
    EXPECT_TRUE(at::equal(x, expected)) << count << " numbers, time " << i;
    group.barrier();
  }
}

TEST_P(Conformance, SumsAreAddedWithTheBitsOfAllReduce) {
  on_all_sizes([](World& world) {
    for (const int64_t count : {0, 1, 576, 8'192, 24'577, 300'007}) {
      expect_added_sums(world.group(), count);
    }
  });
}

TEST_P(Conformance, SharedMemoryHasRoomForSmallSums) {
  const auto expect_room = [this](int64_t count, const char* is_checked, bool expected) {
    test::run_ranks(2,
                    [&](World& world) {
                      EXPECT_EQ(SharedSum(world.group()).room(count) != nullptr, expected);
                      // A rank that ends before the others have connected to it fails them.
                      world.group().barrier();
                    },
                    {.backend = GetParam(), .variables = {{"WEFT_CHECK_COLLECTIVES", is_checked}}});
  };
  expect_room(8'192, "0", GetParam() == "shm");
  expect_room(24'577, "0", false);
  expect_room(8'192, "1", false);
}

TEST_P(Conformance, AnotherCollectiveAfterSumRoomIsAnError) {
  if (GetParam() != "shm") GTEST_SKIP() << "only shm has such room";
  test::run_ranks(
      2,
      [](World& world) {
        const Group& group = world.group();
        at::Tensor x = at::zeros({8});
        float* const room = SharedSum(group).room(8);
        ASSERT_NE(room, nullptr);
        group.barrier();
        EXPECT_EQ(testing::error_text([&] { SharedSum(group).add(x, room); }),
                  "InternalError: dist.shm: add_sum: another collective came after sum_room");
        at::Tensor wide = at::zeros({8}, at::kDouble);
        EXPECT_EQ(
            testing::error_text([&] { SharedSum(group).add(wide, room); }),
            "ShapeError: dist.SharedSum.add: expected a contiguous float32 tensor on the CPU, "
            "got float64 [8]");
      },
      {.backend = "shm", .variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}});
}

// Lengths along a dimension that differ between ranks, one of them zero where there are three.
std::vector<int64_t> uneven_sizes(int64_t n) {
  std::vector<int64_t> sizes;
  for (int64_t r = 0; r < n; ++r) sizes.push_back(r == 2 ? 0 : 3 + 2 * r);
  return sizes;
}

void expect_all_gather(const Group& group, int64_t dim, const std::vector<int64_t>& sizes,
                       at::ScalarType dtype) {
  std::vector<at::Tensor> shards;
  for (size_t r = 0; r < sizes.size(); ++r) {
    std::vector<int64_t> shape = {3, 2, 5};
    shape[static_cast<size_t>(dim)] = sizes[r];
    shards.push_back(test::input_of(static_cast<int>(r), shape, dtype, false));
  }
  const at::Tensor expected = at::cat(shards, dim);
  const at::Tensor& own = shards[static_cast<size_t>(group.rank())];
  SCOPED_TRACE(core::join("all_gather, dim ", dim, ", ", place(group, dtype, own.sizes())));
  EXPECT_TRUE(at::equal(group.all_gather(own, dim), expected));
  EXPECT_TRUE(at::equal(group.all_gather(test::strided_copy(own), dim - 3, sizes), expected));
}

void expect_reduce_scatter(const Group& group, int64_t dim, at::ScalarType dtype) {
  const int64_t n = group.size();
  const std::vector<int64_t> shape = {11, 13, 17};
  SCOPED_TRACE(core::join("reduce_scatter, dim ", dim, ", ", place(group, dtype, shape)));
  const auto inputs = test::inputs_of(static_cast<int>(n), shape, dtype, false);
  const at::Tensor& own = inputs[static_cast<size_t>(group.rank())];
  const auto expect_piece = [&](const at::Tensor& piece, int64_t start, int64_t length) {
    std::vector<at::Tensor> pieces;
    for (const at::Tensor& x : inputs) pieces.push_back(x.narrow(dim, start, length));
    EXPECT_TRUE(test::is_reduction(piece, pieces, ReduceOp::kSum));
  };
  const shard::Range balanced = shard::part(own.size(dim), n, group.rank());
  expect_piece(group.reduce_scatter(own, dim), balanced.start, balanced.length);
  // One element for the first, none for the middle, the rest for the last.
  std::vector<int64_t> sizes(static_cast<size_t>(n), 0);
  sizes[0] = 1;
  sizes.back() += own.size(dim) - 1;
  const at::Tensor piece = group.reduce_scatter(test::strided_copy(own), dim - 3, sizes);
  expect_piece(piece, group.rank() == 0 ? 0 : 1, sizes[static_cast<size_t>(group.rank())]);
}

// Parts of one length, in memory that is there.
void expect_flat(const Group& group, int64_t length, at::ScalarType dtype) {
  SCOPED_TRACE(core::join("into, ", place(group, dtype, {length})));
  const int64_t n = group.size();
  const auto shards = test::inputs_of(static_cast<int>(n), {length}, dtype, false);
  const at::Tensor& own = shards[static_cast<size_t>(group.rank())];
  at::Tensor whole = at::empty({n * length}, own.options());
  group.all_gather_into(whole, own);
  EXPECT_TRUE(at::equal(whole, at::cat(shards, 0)));
  if (group.shares_memory()) {
    at::Tensor in_place = at::zeros({n * length}, own.options());
    const at::Tensor place = in_place.narrow(0, group.rank() * length, length).copy_(own);
    group.all_gather_into(in_place, place);
    EXPECT_TRUE(at::equal(in_place, whole));
  }
  if (dtype == at::kBool) return;
  const auto inputs = test::inputs_of(static_cast<int>(n), {n * length}, dtype, false);
  at::Tensor piece = at::empty({length}, own.options());
  group.reduce_scatter_into(piece, inputs[static_cast<size_t>(group.rank())]);
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& x : inputs) {
    pieces.push_back(x.narrow(0, group.rank() * length, length));
  }
  EXPECT_TRUE(test::is_reduction(piece, pieces, ReduceOp::kSum));
}

void expect_broadcasts(const Group& group, at::ScalarType dtype) {
  for (int64_t root = 0; root < group.size(); ++root) {
    for (const int64_t count : {0, 5, 40'003}) {
      SCOPED_TRACE(core::join("broadcast, root ", root, ", ", place(group, dtype, {count})));
      const at::Tensor source = test::input_of(static_cast<int>(root), {count}, dtype, false);
      const bool is_root = group.rank() == root;
      at::Tensor x = is_root ? source.clone() : at::zeros_like(source);
      group.broadcast(x, root);
      EXPECT_TRUE(at::equal(x, source));
      at::Tensor strided = test::strided_copy(is_root ? source : at::zeros_like(source));
      group.broadcast(strided, root);
      EXPECT_TRUE(at::equal(strided, source));
    }
  }
}

void expect_moves(const Group& group) {
  const std::vector<int64_t> even(static_cast<size_t>(group.size()), 4);
  const std::vector<int64_t> none(static_cast<size_t>(group.size()), 0);
  for (const at::ScalarType dtype : kTypes) {
    for (const int64_t dim : {0, 1, 2}) {
      expect_all_gather(group, dim, uneven_sizes(group.size()), dtype);
      if (dtype != at::kBool) expect_reduce_scatter(group, dim, dtype);
    }
    expect_all_gather(group, 1, even, dtype);
    expect_all_gather(group, 0, none, dtype);
    for (const int64_t length : {1, 17, 30'001}) expect_flat(group, length, dtype);
    expect_broadcasts(group, dtype);
  }
}

TEST_P(Conformance, GathersScattersAndBroadcastsAsOnTheWhole) {
  on_all_sizes([](World& world) { expect_moves(world.group()); });
}

// All send first, more than any buffer holds.
void pass_around(const Group& group, int64_t count, at::ScalarType dtype) {
  SCOPED_TRACE(core::join("send, ", place(group, dtype, {count})));
  const int64_t n = group.size();
  group.send(test::input_of(static_cast<int>(group.rank()), {count}, dtype, false),
             (group.rank() + 1) % n);
  const int64_t source = (group.rank() + n - 1) % n;
  const at::Tensor expected = test::input_of(static_cast<int>(source), {count}, dtype, false);
  at::Tensor x = test::strided_copy(at::zeros_like(expected));
  group.receive(x, source);
  EXPECT_TRUE(at::equal(x, expected));
}

// Messages of one pair arrive in the order in which they were sent.
void expect_order(const Group& group) {
  constexpr int64_t kMessages = 5;
  if (group.rank() == 0) {
    for (int64_t i = 0; i < kMessages; ++i) group.send(at::full({i + 1}, i, at::kLong), 1);
  } else if (group.rank() == 1) {
    for (int64_t i = 0; i < kMessages; ++i) {
      at::Tensor x = at::zeros({i + 1}, at::kLong);
      group.receive(x, 0);
      EXPECT_TRUE(at::equal(x, at::full({i + 1}, i, at::kLong)));
    }
  }
}

TEST_P(Conformance, RanksMayAllSendBeforeTheyReceive) {
  for (const char* checked : {"1", "0"}) {
    test::run_ranks(3,
                    [](World& world) {
                      for (const at::ScalarType dtype : kTypes)
                        pass_around(world.group(), 17, dtype);
                      for (const int64_t count : {0, 1, 1'000'003, 2}) {
                        pass_around(world.group(), count, at::kFloat);
                      }
                      expect_order(world.group());
                      world.group().barrier();
                    },
                    {.backend = GetParam(), .variables = {{"WEFT_CHECK_COLLECTIVES", checked}}});
  }
}

void expect_group_works(const Group& group) {
  expect_all_reduce(group, {1003}, at::kBFloat16, ReduceOp::kSum);
  expect_all_reduce(group, {1003}, at::kLong, ReduceOp::kMax);
  expect_all_gather(group, 1, uneven_sizes(group.size()), at::kFloat);
  expect_reduce_scatter(group, 0, at::kFloat);
  expect_broadcasts(group, at::kInt);
  group.barrier();
  if (group.size() > 1) pass_around(group, 1003, at::kFloat);
}

TEST_P(Conformance, SubGroupsWorkBesideEachOther) {
  test::run_ranks(4,
                  [](World& world) {
                    const Group low = world.make_group("low", {0, 1});
                    const Group high = world.make_group("high", {2, 3});
                    const Group even = world.make_group("even", {0, 2});
                    const Group three = world.make_group("three", {0, 1, 3});
                    EXPECT_EQ(three.size(), world.rank() == 2 ? 1 : 3);
                    EXPECT_EQ(three.rank(), world.rank() == 3 ? 2 : world.rank() % 2);
                    EXPECT_EQ(even.size(), world.rank() % 2 == 0 ? 2 : 1);
                    const Group& pair = world.rank() < 2 ? low : high;
                    EXPECT_EQ((world.rank() < 2 ? high : low).size(), 1);
                    for (int i = 0; i < 2; ++i) {
                      expect_group_works(pair);
                      expect_group_works(three);
                      expect_group_works(even);
                      expect_group_works(world.group());
                    }
                  },
                  {.backend = GetParam()});
}

TEST_P(Conformance, ABarrierWaitsForTheSlowest) {
  test::run_ranks(3,
                  [](World& world) {
                    const std::string mark =
                        ::testing::TempDir() + "weft-barrier-" + world.info().job_id;
                    for (int slow = 0; slow < 3; ++slow) {
                      if (world.rank() == slow) {
                        usleep(50'000);
                        std::ofstream(mark + std::to_string(slow)) << "here";
                      }
                      world.group().barrier();
                      EXPECT_TRUE(std::filesystem::exists(mark + std::to_string(slow))) << slow;
                      world.group().barrier();
                      if (world.rank() == slow)
                        std::filesystem::remove(mark + std::to_string(slow));
                    }
                  },
                  {.backend = GetParam()});
}

TEST_P(Conformance, ChecksThatTheRanksAgree) {
  test::run_ranks(2,
                  [](World& world) {
                    world.group().check_agreement("model", "same");
                    world.group().check_agreement("model", "");
                    std::string text = "nothing was thrown";
                    try {
                      world.group().check_agreement("model file",
                                                    world.rank() == 0 ? "a.gguf" : "bb.gguf");
                    } catch (const core::CommError& error) {
                      text = error.what();
                    }
                    EXPECT_EQ(text,
                              "dist.Group: model file: the ranks of group world disagree: rank 0: "
                              "'a.gguf', rank 1: 'bb.gguf'; give all of them the same");
                  },
                  {.backend = GetParam()});
}

}  // namespace
}  // namespace weft::dist
