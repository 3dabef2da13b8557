// libtorch's own interface to a group, the same on every backend: what a user's c10d code meets.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "tests/dist/oracle.h"
#include "tests/support/backends.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist/world.h"

namespace weft::dist {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// How the operations are called.
struct Way {
  at::ScalarType dtype = at::kFloat;
  bool async = true;
  // Gloo reads a strided tensor as if it were dense, so only shm is given such.
  bool strided = false;
};

// Whole numbers, so that no order of adding rounds.
at::Tensor numbers(int rank, int64_t count, const Way& way) {
  return test::input_of(rank, {count}, way.dtype, true);
}

at::Tensor laid_out(const at::Tensor& x, const Way& way) {
  return way.strided ? test::strided_copy(x) : x;
}

at::Tensor sum_of_all(int ranks, int64_t count, const Way& way) {
  return test::reduced(test::inputs_of(ranks, {count}, way.dtype, true), ReduceOp::kSum);
}

template <class Options>
Options options_for(const Way& way) {
  Options options;
  options.asyncOp = way.async;
  return options;
}

void expect_all_reduce_and_broadcast(c10d::ProcessGroup& group, int64_t count, const Way& way) {
  const int n = group.getSize();
  Tensors x = {laid_out(numbers(group.getRank(), count, way), way)};
  group.allreduce(x, options_for<c10d::AllreduceOptions>(way))->wait();
  EXPECT_TRUE(at::equal(x[0], sum_of_all(n, count, way)));
  for (int root = 0; root < n; ++root) {
    Tensors own = {laid_out(numbers(group.getRank(), count, way), way)};
    auto options = options_for<c10d::BroadcastOptions>(way);
    options.rootRank = root;
    group.broadcast(own, options)->wait();
    EXPECT_TRUE(at::equal(own[0], numbers(root, count, way)));
  }
}

void expect_reduce(c10d::ProcessGroup& group, int64_t count, const Way& way) {
  for (int root = 0; root < group.getSize(); ++root) {
    Tensors x = {laid_out(numbers(group.getRank(), count, way), way)};
    auto options = options_for<c10d::ReduceOptions>(way);
    options.rootRank = root;
    group.reduce(x, options)->wait();
    if (group.getRank() != root) continue;
    EXPECT_TRUE(at::equal(x[0], sum_of_all(group.getSize(), count, way)));
  }
}

void expect_gathers(c10d::ProcessGroup& group, int64_t count, const Way& way) {
  const int n = group.getSize();
  const int root = n - 1;
  const auto room = [&] {
    Tensors tensors;
    for (int r = 0; r < n; ++r) tensors.push_back(at::zeros({count}, way.dtype));
    return tensors;
  };
  const auto expect_all = [&](const Tensors& gathered) {
    for (int r = 0; r < n; ++r) {
      EXPECT_TRUE(at::equal(gathered[static_cast<size_t>(r)], numbers(r, count, way)));
    }
  };
  Tensors own = {laid_out(numbers(group.getRank(), count, way), way)};
  std::vector<Tensors> at_root;
  if (group.getRank() == root) at_root.push_back(room());
  auto options = options_for<c10d::GatherOptions>(way);
  options.rootRank = root;
  group.gather(at_root, own, options)->wait();
  if (group.getRank() == root) expect_all(at_root[0]);
  std::vector<Tensors> everywhere = {room()};
  group.allgather(everywhere, own, options_for<c10d::AllgatherOptions>(way))->wait();
  expect_all(everywhere[0]);
}

void expect_scatter(c10d::ProcessGroup& group, int64_t count, const Way& way) {
  std::vector<Tensors> pieces;
  if (group.getRank() == 0) {
    pieces.emplace_back();
    for (int r = 0; r < group.getSize(); ++r) {
      pieces[0].push_back(laid_out(numbers(r, count, way), way));
    }
  }
  Tensors own = {at::zeros({count}, way.dtype)};
  group.scatter(own, pieces, options_for<c10d::ScatterOptions>(way))->wait();
  EXPECT_TRUE(at::equal(own[0], numbers(group.getRank(), count, way)));
}

void expect_base_operations(c10d::ProcessGroup& group, int64_t count, const Way& way) {
  const int rank = group.getRank();
  const int n = group.getSize();
  at::Tensor own = numbers(rank, count, way);
  at::Tensor all = at::zeros({n * count}, way.dtype);
  group._allgather_base(all, own, options_for<c10d::AllgatherOptions>(way))->wait();
  for (int r = 0; r < n; ++r) {
    EXPECT_TRUE(at::equal(all.narrow(0, r * count, count), numbers(r, count, way)));
  }
  at::Tensor whole = numbers(rank, n * count, way);
  at::Tensor piece = at::zeros({count}, way.dtype);
  group._reduce_scatter_base(piece, whole, options_for<c10d::ReduceScatterOptions>(way))->wait();
  EXPECT_TRUE(at::equal(piece, sum_of_all(n, n * count, way).narrow(0, rank * count, count)));
}

// Rank i sends i + 2j + 1 rows to rank j.
void expect_uneven_all_to_all(c10d::ProcessGroup& group, const Way& way) {
  const int rank = group.getRank();
  const int n = group.getSize();
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
  Tensors parts;
  Tensors expected;
  for (int r = 0; r < n; ++r) {
    sent.push_back(rank + 2 * r + 1);
    received.push_back(r + 2 * rank + 1);
    parts.push_back(at::full({sent.back(), 5}, 10 * rank + r, way.dtype));
    expected.push_back(at::full({received.back(), 5}, 10 * r + rank, way.dtype));
  }
  at::Tensor input = at::cat(parts);
  at::Tensor output = at::zeros_like(at::cat(expected));
  group.alltoall_base(output, input, received, sent, options_for<c10d::AllToAllOptions>(way))
      ->wait();
  EXPECT_TRUE(at::equal(output, at::cat(expected)));
}

void expect_operations(c10d::ProcessGroup& group, const Way& way) {
  for (const int64_t count : {0, 1, 3, 70'001}) {
    SCOPED_TRACE(core::join(way.dtype, ", count ", count, way.async ? ", asynchronous" : ""));
    expect_all_reduce_and_broadcast(group, count, way);
    expect_reduce(group, count, way);
    expect_gathers(group, count, way);
    expect_scatter(group, count, way);
    if (count > 0) expect_base_operations(group, count, way);
  }
  expect_uneven_all_to_all(group, way);
}

// Several at once, of different kinds, and the last is waited for first.
void expect_many_in_flight(c10d::ProcessGroup& group) {
  constexpr int kRounds = 6;
  const int n = group.getSize();
  std::vector<Tensors> summed;
  std::vector<Tensors> sent;
  std::vector<WorkPtr> works;
  for (int i = 0; i < kRounds; ++i) {
    const Way way = {i % 2 == 0 ? at::kFloat : at::kLong};
    summed.push_back({numbers(group.getRank(), 1000 * i + 1, way)});
    sent.push_back({numbers(group.getRank(), 500 * (kRounds - i), way)});
    c10d::BroadcastOptions options;
    options.rootRank = i % n;
    works.push_back(group.allreduce(summed.back()));
    works.push_back(group.broadcast(sent.back(), options));
  }
  for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();
  for (int i = 0; i < kRounds; ++i) {
    SCOPED_TRACE(core::join("round ", i));
    const Way way = {i % 2 == 0 ? at::kFloat : at::kLong};
    const auto round = static_cast<size_t>(i);
    EXPECT_TRUE(works[2 * round]->isCompleted());
    EXPECT_TRUE(at::equal(summed[round][0], sum_of_all(n, 1000 * i + 1, way)));
    EXPECT_TRUE(at::equal(sent[round][0], numbers(i % n, 500 * (kRounds - i), way)));
  }
}

void expect_messages_by_tag(c10d::ProcessGroup& group) {
  const Way way;
  if (group.getRank() == 0) {
    Tensors first = {numbers(0, 1000, way)};
    Tensors second = {numbers(1, 500'000, way)};
    const WorkPtr one = group.send(first, 1, 7);
    const WorkPtr two = group.send(second, 1, 9);
    one->wait();
    two->wait();
  } else if (group.getRank() == 1) {
    Tensors second = {at::zeros({500'000})};
    group.recv(second, 0, 9)->wait();
    Tensors first = {at::zeros({1000})};
    group.recv(first, 0, 7)->wait();
    EXPECT_TRUE(at::equal(first[0], numbers(0, 1000, way)));
    EXPECT_TRUE(at::equal(second[0], numbers(1, 500'000, way)));
  }
}

class ConformanceHandle : public test::OnEachBackend {};
INSTANTIATE_TEST_SUITE_P(Backends, ConformanceHandle, test::kEachBackend, test::backend_of);

TEST_P(ConformanceHandle, RunsLibtorchsOperations) {
  const auto body = [](World& world) {
    c10d::ProcessGroup& group = *world.group().process_group();
    const bool strided = world.backend() == "shm";
    for (const at::ScalarType dtype :
         {at::kChar, at::kByte, at::kInt, at::kLong, at::kHalf, at::kBFloat16, at::kDouble}) {
      expect_operations(group, {dtype, true, strided});
    }
    for (const bool async : {true, false}) expect_operations(group, {at::kFloat, async, strided});
    expect_many_in_flight(group);
    expect_messages_by_tag(group);
    world.group().barrier();
  };
  for (int n = 2; n <= 4; ++n) test::run_ranks(n, body, {.backend = GetParam()});
  test::run_ranks(3, body, {.backend = GetParam(), .variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}});
}

TEST_P(ConformanceHandle, OfASubGroupRunsThem) {
  test::run_ranks(4,
                  [](World& world) {
                    const Group low = world.make_group("low", {0, 2});
                    const Group three = world.make_group("three", {0, 1, 3});
                    for (const Group* group : {&low, &three}) {
                      if (group->size() == 1) continue;
                      expect_operations(*group->process_group(), {});
                      expect_many_in_flight(*group->process_group());
                    }
                    world.group().barrier();
                  },
                  {.backend = GetParam()});
}

}  // namespace
}  // namespace weft::dist
