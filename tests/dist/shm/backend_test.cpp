// What the shm backend does beyond the conformance suite.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "tests/dist/oracle.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist/backends/block_backend.h"
#include "weft/dist/world.h"

namespace weft::dist {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor shm_input(int rank, int64_t count) {
  return test::input_of(rank, {count}, at::kFloat, true);
}

TEST(ShmBackend, GathersTensorsOfDifferentSizes) {
  test::run_ranks(3, [](World& world) {
    Tensors own = {shm_input(world.rank(), 70'000 * world.rank())};
    std::vector<Tensors> all(1);
    for (int r = 0; r < 3; ++r) all[0].push_back(at::zeros({70'000 * r}));
    world.group().process_group()->allgather(all, own)->wait();
    for (int r = 0; r < 3; ++r) {
      EXPECT_TRUE(at::equal(all[0][static_cast<size_t>(r)], shm_input(r, 70'000 * r)));
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
  const auto body = [](World& world) {
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
  };
  for (const char* checked : {"0", "1"}) {
    test::run_ranks(2, body, {.variables = {{"WEFT_CHECK_COLLECTIVES", checked}}});
  }
}

TEST(ShmBackend, SaysWhatIsWrongWithAMessage) {
  const auto misfit = [](World& world) {
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
  };
  test::run_ranks(2, misfit, {.variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}});
}

TEST(ShmBackend, NamesBothSizesWhenPiecesDoNotFit) {
  const auto misfit = [](World& world) {
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
  };
  test::run_ranks(2, misfit, {.variables = {{"WEFT_CHECK_COLLECTIVES", "0"}}});
}

}  // namespace
}  // namespace weft::dist
