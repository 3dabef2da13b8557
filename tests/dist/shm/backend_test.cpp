// The shm backend through libtorch's own interface, beside Gloo where Gloo has the operation.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/dist/oracle.h"
#include "tests/support/backends.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist/shm/transport.h"
#include "weft/dist/world.h"

namespace weft::dist {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor numbers(int rank, int64_t count) {
  return test::input_of(rank, {count}, at::kFloat, true);
}

template <class Options>
Options options_for(bool async) {
  Options options;
  options.asyncOp = async;
  return options;
}

// Gloo reads a strided tensor as if it were dense, so only shm is given such.
void expect_reduce_and_gather(c10d::ProcessGroup& group, bool async, bool strided) {
  const int rank = group.getRank();
  const int n = group.getSize();
  const int root = n - 1;
  for (const int64_t count : {0, 1, 150'001}) {
    const at::Tensor mine = numbers(rank, count);
    Tensors x = {strided ? test::strided_copy(mine) : mine};
    auto reduce = options_for<c10d::ReduceOptions>(async);
    reduce.rootRank = root;
    group.reduce(x, reduce)->wait();
    if (rank == root) {
      const auto all = test::inputs_of(n, {count}, at::kFloat, true);
      EXPECT_TRUE(at::equal(x[0], test::reduced(all, ReduceOp::kSum)));
    }
    Tensors own = {numbers(rank, count)};
    std::vector<Tensors> gathered;
    if (rank == root) {
      gathered.emplace_back();
      for (int r = 0; r < n; ++r) gathered[0].push_back(at::zeros({count}));
    }
    auto gather = options_for<c10d::GatherOptions>(async);
    gather.rootRank = root;
    group.gather(gathered, own, gather)->wait();
    for (int r = 0; rank == root && r < n; ++r) {
      EXPECT_TRUE(at::equal(gathered[0][static_cast<size_t>(r)], numbers(r, count)));
    }
  }
}

void expect_scatter(c10d::ProcessGroup& group, bool async, bool strided) {
  const int rank = group.getRank();
  const int n = group.getSize();
  for (const int64_t count : {0, 3, 150'001}) {
    std::vector<Tensors> pieces;
    if (rank == 0) {
      pieces.emplace_back();
      for (int r = 0; r < n; ++r) {
        const at::Tensor piece = numbers(r, count);
        pieces[0].push_back(strided ? test::strided_copy(piece) : piece);
      }
    }
    Tensors own = {at::zeros({count})};
    group.scatter(own, pieces, options_for<c10d::ScatterOptions>(async))->wait();
    EXPECT_TRUE(at::equal(own[0], numbers(rank, count)));
  }
}

void expect_base_operations(c10d::ProcessGroup& group, bool async) {
  const int rank = group.getRank();
  const int n = group.getSize();
  for (const int64_t count : {1, 100'003}) {
    at::Tensor own = numbers(rank, count);
    at::Tensor all = at::zeros({n * count});
    group._allgather_base(all, own, options_for<c10d::AllgatherOptions>(async))->wait();
    for (int r = 0; r < n; ++r)
      EXPECT_TRUE(at::equal(all.narrow(0, r * count, count), numbers(r, count)));
    at::Tensor whole = numbers(rank, n * count);
    at::Tensor piece = at::zeros({count});
    group._reduce_scatter_base(piece, whole, options_for<c10d::ReduceScatterOptions>(async))
        ->wait();
    const auto inputs = test::inputs_of(n, {n * count}, at::kFloat, true);
    const at::Tensor sum = test::reduced(inputs, ReduceOp::kSum);
    EXPECT_TRUE(at::equal(piece, sum.narrow(0, rank * count, count)));
  }
}

// Rank i sends i + 2j + 1 rows to rank j.
void expect_uneven_all_to_all(c10d::ProcessGroup& group, bool async) {
  const int rank = group.getRank();
  const int n = group.getSize();
  std::vector<int64_t> sent;
  std::vector<int64_t> received;
  Tensors expected;
  for (int r = 0; r < n; ++r) {
    sent.push_back(rank + 2 * r + 1);
    received.push_back(r + 2 * rank + 1);
    expected.push_back(at::full({received.back(), 5}, 10 * r + rank, at::kFloat));
  }
  Tensors parts;
  for (int r = 0; r < n; ++r) {
    parts.push_back(at::full({sent[static_cast<size_t>(r)], 5}, 10 * rank + r, at::kFloat));
  }
  at::Tensor input = at::cat(parts);
  at::Tensor output = at::zeros({at::cat(expected).size(0), 5});
  group.alltoall_base(output, input, received, sent, options_for<c10d::AllToAllOptions>(async))
      ->wait();
  EXPECT_TRUE(at::equal(output, at::cat(expected)));
}

TEST(ShmBackend, DoesWhatGlooDoesThroughLibtorch) {
  for (const char* backend : test::cpu_backends()) {
    for (int n = 2; n <= 4; ++n) {
      test::run_ranks(n,
                      [&](World& world) {
                        c10d::ProcessGroup& group = *world.group().process_group();
                        for (const bool async : {true, false}) {
                          // Gloo works in the background in any case, and wait() is right for both.
                          expect_reduce_and_gather(group, async, world.backend() != "gloo");
                          expect_scatter(group, async, world.backend() != "gloo");
                          expect_base_operations(group, async);
                          expect_uneven_all_to_all(group, async);
                        }
                      },
                      {.backend = backend});
    }
  }
}

TEST(ShmBackend, GathersTensorsOfDifferentSizes) {
  test::run_ranks(3, [](World& world) {
    Tensors own = {numbers(world.rank(), 70'000 * world.rank())};
    std::vector<Tensors> all(1);
    for (int r = 0; r < 3; ++r) all[0].push_back(at::zeros({70'000 * r}));
    world.group().process_group()->allgather(all, own)->wait();
    for (int r = 0; r < 3; ++r) {
      EXPECT_TRUE(at::equal(all[0][static_cast<size_t>(r)], numbers(r, 70'000 * r)));
    }
  });
}

TEST(ShmBackend, ExchangesListsOfTensors) {
  test::run_ranks(3, [](World& world) {
    const int rank = world.rank();
    Tensors sent;
    Tensors received;
    for (int r = 0; r < 3; ++r) {
      sent.push_back(at::full({(rank + 1) * (r + 1)}, 10 * rank + r, at::kLong));
      received.push_back(at::zeros({(rank + 1) * (r + 1)}, at::kLong));
    }
    world.group().process_group()->alltoall(received, sent)->wait();
    for (int r = 0; r < 3; ++r) {
      EXPECT_TRUE(at::equal(received[static_cast<size_t>(r)],
                            at::full({(rank + 1) * (r + 1)}, 10 * r + rank, at::kLong)));
    }
  });
}

TEST(ShmBackend, RunsQueuedOperationsInOrderBeforeOneThatIsNot) {
  test::run_ranks(2, [](World& world) {
    c10d::ProcessGroup& group = *world.group().process_group();
    at::Tensor x = at::ones({50'000});
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    for (int i = 0; i < 10; ++i) {
      Tensors list = {x};
      works.push_back(group.allreduce(list));
    }
    world.group().all_reduce(x);
    for (const auto& work : works) {
      EXPECT_TRUE(work->isCompleted());
      work->wait();
    }
    EXPECT_EQ(x[49'999].item<float>(), 2048.0F);
    EXPECT_TRUE(works.back()->getFuture()->completed());
  });
}

TEST(ShmBackend, MatchesMessagesByTag) {
  test::run_ranks(2, [](World& world) {
    c10d::ProcessGroup& group = *world.group().process_group();
    if (world.rank() == 0) {
      Tensors first = {numbers(0, 1000)};
      Tensors second = {numbers(1, 500'000)};
      group.send(first, 1, 7)->wait();
      group.send(second, 1, 9)->wait();
    } else {
      Tensors second = {at::zeros({500'000})};
      group.recv(second, 0, 9)->wait();
      Tensors first = {at::zeros({1000})};
      group.recv(first, 0, 7)->wait();
      EXPECT_TRUE(at::equal(first[0], numbers(0, 1000)));
      EXPECT_TRUE(at::equal(second[0], numbers(1, 500'000)));
    }
    world.group().barrier();
  });
}

TEST(ShmBackend, SaysWhatIsWrongWithAMessage) {
  test::run_ranks(2, [](World& world) {
    const Group& group = world.group();
    if (world.rank() == 0) {
      group.send(at::ones({3}), 1);
      group.barrier();
      return;
    }
    at::Tensor x = at::ones({2});
    try {
      group.receive(x, 0);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const core::CommError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("expected 8 bytes of Float, but rank 0 (pid "), std::string::npos)
          << text;
      EXPECT_NE(text.find("sent 12 bytes of Float"), std::string::npos) << text;
    }
    group.barrier();
  });
}

TEST(ShmBackend, NamesBothSizesWhenPiecesDoNotFit) {
  test::run_ranks(2, [](World& world) {
    Tensors own = {at::ones({4 + world.rank()})};
    std::vector<Tensors> all = {{at::zeros({4}), at::zeros({4})}};
    c10d::AllgatherOptions options;
    options.asyncOp = false;
    try {
      world.group().process_group()->allgather(all, own, options);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const core::CommError& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("expects 16 bytes of rank 1 (pid "), std::string::npos) << text;
      EXPECT_NE(text.find("which has 20; give all ranks the same sizes"), std::string::npos)
          << text;
    }
  });
}

}  // namespace
}  // namespace weft::dist
