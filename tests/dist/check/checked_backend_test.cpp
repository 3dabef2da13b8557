// Ranks that call different things under WEFT_CHECK_COLLECTIVES, on every backend.
#include "weft/dist/check/checked_backend.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "tests/support/backends.h"
#include "tests/support/run_command.h"
#include "tests/support/run_ranks.h"
#include "weft/core/error.h"
#include "weft/dist/world.h"

namespace weft::dist {
namespace {

using Tensors = std::vector<at::Tensor>;
using Body = std::function<void(const Group&)>;

class CheckedBackendOn : public test::OnEachBackend {};
INSTANTIATE_TEST_SUITE_P(Backends, CheckedBackendOn, test::kEachBackend, test::backend_of);

std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const core::CommError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

constexpr const char* kRemedy =
    "; all ranks must call the same collectives in the same order with fitting shapes";

// Rank 0 does `first` and the others `second`; all must say so, and the group works on.
void expect_mismatch(const Group& group, const Body& first, const Body& second,
                     const std::string& expected) {
  SCOPED_TRACE(expected);
  const std::string own = error_of([&] { (group.rank() == 0 ? first : second)(group); });
  EXPECT_EQ(own, core::join("dist.Group: group ", group.name(), ": ", expected, kRemedy));
  at::Tensor ones = at::ones({5});
  group.all_reduce(ones);
  EXPECT_TRUE(at::equal(ones, at::full({5}, group.size(), at::kFloat)));
}

Body reduces(at::IntArrayRef shape, at::ScalarType dtype, ReduceOp op = ReduceOp::kSum) {
  return [shape = shape.vec(), dtype, op](const Group& group) {
    at::Tensor x = at::ones(shape, dtype);
    group.all_reduce(x, op);
  };
}

Body gathers(at::IntArrayRef shape, int64_t dim) {
  return [shape = shape.vec(), dim](const Group& group) { group.all_gather(at::ones(shape), dim); };
}

void expect_group_mismatches(const Group& group) {
  expect_mismatch(group, reduces({4, 8}, at::kFloat), gathers({4, 2}, 1),
                  "rank 0 called all_reduce #1 float32 [4, 8] sum, "
                  "rank 1 called all_gather #1 float32 [4, 2] along dim 1");
  expect_mismatch(group, reduces({1000}, at::kFloat), reduces({900}, at::kFloat),
                  "rank 0 called all_reduce #3 float32 [1000] sum, "
                  "rank 1 called all_reduce #3 float32 [900] sum");
  expect_mismatch(group, reduces({8}, at::kHalf), reduces({8}, at::kBFloat16),
                  "rank 0 called all_reduce #5 float16 [8] sum, "
                  "rank 1 called all_reduce #5 bfloat16 [8] sum");
  expect_mismatch(group, reduces({8}, at::kFloat, ReduceOp::kMax),
                  reduces({8}, at::kFloat, ReduceOp::kAverage),
                  "rank 0 called all_reduce #7 float32 [8] max, "
                  "rank 1 called all_reduce #7 float32 [8] average");
  expect_mismatch(group, gathers({4, 2}, 0), gathers({4, 3}, 0),
                  "rank 0 called all_gather #9 float32 [4, 2] along dim 0, "
                  "rank 1 called all_gather #9 float32 [4, 3] along dim 0");
  const auto broadcasts = [](int64_t root) {
    return [root](const Group& g) {
      at::Tensor x = at::ones({3});
      g.broadcast(x, root);
    };
  };
  expect_mismatch(group, broadcasts(0), broadcasts(1),
                  "rank 0 called broadcast #11 float32 [3] root 0, "
                  "rank 1 called broadcast #11 float32 [3] root 1");
  const auto scatters = [](int64_t rows) {
    return [rows](const Group& g) { g.reduce_scatter(at::ones({rows, 2}), 0); };
  };
  expect_mismatch(
      group, scatters(6), [](const Group& g) { g.barrier(); },
      core::join("rank 0 called reduce_scatter #13 float32 [6, 2] sum along dim 0 to ",
                 group.size() == 2 ? "[3, 3]" : "[2, 2, 2]", ", rank 1 called barrier #13"));
  expect_mismatch(
      group, [](const Group& g) { g.check_agreement("model", "a"); },
      [](const Group& g) { g.barrier(); },
      "rank 0 called all_gather #15 to agree on the model, rank 1 called barrier #15");
}

TEST_P(CheckedBackendOn, NamesBothRanksCallsOnAllRanks) {
  for (const int n : {2, 3}) {
    test::run_ranks(n, [](World& world) { expect_group_mismatches(world.group()); },
                    {.backend = GetParam()});
  }
}

// A user's own libtorch code, and work that runs while others are issued.
void expect_handle_mismatches(const Group& group) {
  c10d::ProcessGroup& handle = *group.process_group();
  const bool first = group.rank() == 0;
  Tensors good = {at::ones({7})};
  Tensors odd = {at::ones({first ? 4 : 5})};
  Tensors last = {at::full({2}, 2.0)};
  const auto one = handle.allreduce(good);
  const auto two = handle.allreduce(odd);
  const auto three = handle.allreduce(last);
  three->wait();
  EXPECT_EQ(error_of([&] { two->wait(); }),
            core::join("dist.Group: group world: rank 0 called all_reduce #2 float32 [4] sum, rank "
                       "1 called all_reduce #2 float32 [5] sum",
                       kRemedy));
  one->wait();
  EXPECT_TRUE(at::equal(good[0], at::full({7}, group.size(), at::kFloat)));
  EXPECT_TRUE(at::equal(last[0], at::full({2}, 2.0 * group.size())));
  EXPECT_TRUE(at::equal(odd[0], at::ones({first ? 4 : 5})));
  EXPECT_EQ(error_of([&] {
              Tensors x = {at::ones({2})};
              if (first) {
                handle.broadcast(x)->wait();
              } else {
                handle.barrier()->wait();
              }
            }),
            core::join("dist.Group: group world: rank 0 called broadcast #4 float32 [2] root 0, "
                       "rank 1 called barrier #4",
                       kRemedy));
}

// Rank r gives to[j] rows to rank j; rank 1 expects one too many of rank 0.
void expect_pieces_to_fit(const Group& group) {
  const int64_t n = group.size();
  std::vector<int64_t> gives(static_cast<size_t>(n), 2);
  std::vector<int64_t> takes(static_cast<size_t>(n), 2);
  if (group.rank() == 1) takes[0] = 3;
  at::Tensor in = at::ones({2 * n});
  at::Tensor out = at::zeros({2 * n + (group.rank() == 1 ? 1 : 0)});
  const std::string text =
      error_of([&] { group.process_group()->alltoall_base(out, in, takes, gives)->wait(); });
  EXPECT_EQ(text,
            core::join("dist.Group: group world: rank 0 called all_to_all #5 float32 [", 2 * n,
                       "] to float32 [", 2 * n, "], rank 1 called all_to_all #5 float32 [", 2 * n,
                       "] to float32 [", 2 * n + 1,
                       "]; the first gives 2 elements and the second expects 3; give both "
                       "the same"));
}

TEST_P(CheckedBackendOn, ChecksLibtorchsOwnCallsAndAsynchronousWork) {
  test::run_ranks(2,
                  [](World& world) {
                    expect_handle_mismatches(world.group());
                    expect_pieces_to_fit(world.group());
                    world.group().barrier();
                  },
                  {.backend = GetParam()});
}

TEST_P(CheckedBackendOn, ComparesAMessageWithWhatIsReceived) {
  test::run_ranks(2,
                  [](World& world) {
                    const Group& group = world.group();
                    if (world.rank() == 0) {
                      group.send(at::ones({3}), 1);
                      group.send(at::ones({2}, at::kLong), 1);
                      group.send(at::full({2}, 5.0F), 1);
                      group.barrier();
                      return;
                    }
                    at::Tensor x = at::zeros({2});
                    EXPECT_EQ(error_of([&] { group.receive(x, 0); }),
                              "dist.Group: group world: rank 1 receives float32 [2] of rank 0, "
                              "which sent float32 [3]; give both the same shape and type");
                    EXPECT_EQ(error_of([&] { group.receive(x, 0); }),
                              "dist.Group: group world: rank 1 receives float32 [2] of rank 0, "
                              "which sent int64 [2]; give both the same shape and type");
                    group.receive(x, 0);
                    EXPECT_TRUE(at::equal(x, at::full({2}, 5.0F)));
                    group.barrier();
                  },
                  {.backend = GetParam()});
}

// What another rank may do before it takes part must not need this rank's asynchronous call.
TEST_P(CheckedBackendOn, AsynchronousCallsDoNotHoldUpTheirIssuer) {
  test::run_ranks(2,
                  [](World& world) {
                    const Group& group = world.group();
                    Tensors x = {at::ones({3})};
                    at::Tensor token = at::full({1}, world.rank(), at::kFloat);
                    c10::intrusive_ptr<c10d::Work> work;
                    if (world.rank() == 0) work = group.process_group()->allreduce(x);
                    if (world.rank() == 0) group.send(token, 1);
                    if (world.rank() == 1) group.receive(token, 0);
                    if (world.rank() == 1) work = group.process_group()->allreduce(x);
                    work->wait();
                    EXPECT_TRUE(at::equal(x[0], at::full({3}, 2.0F)));
                    EXPECT_EQ(token.item<float>(), 0.0F);
                  },
                  {.backend = GetParam()});
}

TEST_P(CheckedBackendOn, ARankThatEndsEarlyIsNoticed) {
  test::run_ranks(
      2,
      [](World& world) {
        world.group().barrier();
        if (world.rank() == 1) return;
        const std::string text = error_of([&] { world.group().barrier(); });
        EXPECT_NE(text.find("rank 1 (pid "), std::string::npos) << text;
        const auto says = [&](const char* what) { return text.find(what) != std::string::npos; };
        const bool is_told = says("was killed or has ended after barrier #1 of group world");
        // Of a rank on another host the connection may tell first.
        EXPECT_TRUE(is_told || (!world.info().single_host() && says("by peer"))) << text;
      },
      {.backend = GetParam()});
}

// Each waits for the other in a group of its own choice.
TEST_P(CheckedBackendOn, TheTimeOutOfCrossedGroupsSaysWhatTheOthersDo) {
  const auto crossed = [](World& world) {
    const Group one = world.make_group("one", {0, 1});
    const Group two = world.make_group("two", {0, 1});
    const bool first = world.rank() == 0;
    at::Tensor x = at::ones({4});
    const std::string text = error_of([&] { (first ? one : two).all_reduce(x); });
    const std::string own =
        core::join("dist.Group: all_reduce #1 of group ", first ? "one" : "two");
    EXPECT_EQ(text.rfind(own, 0), 0U) << text;
    // The slower of the two may already see the other's end.
    EXPECT_NE(text.find(core::join("rank ", first ? 1 : 0, " (pid ")), std::string::npos) << text;
    EXPECT_NE(text.find(core::join("during all_reduce #1 of group ", first ? "two" : "one")),
              std::string::npos)
        << text;
  };
  for (const char* checked : {"0", "1"}) {
    test::run_ranks(2, crossed,
                    {.backend = GetParam(),
                     .variables = {{"WEFT_TIMEOUT_S", "1"}, {"WEFT_CHECK_COLLECTIVES", checked}}});
  }
}

TEST(CheckedBackend, IsOffUnlessAskedFor) {
  test::run_ranks(2,
                  [](World& world) {
                    EXPECT_FALSE(WorldOptions().check_collectives);
                    const auto backend = world.group().process_group()->getDefaultBackend();
                    EXPECT_EQ(dynamic_cast<CheckedBackend*>(backend.get()), nullptr);
                  },
                  {.variables = {{"WEFT_CHECK_COLLECTIVES", ""}}});
  test::run_ranks(2, [](World& world) {
    const auto backend = world.group().process_group()->getDefaultBackend();
    EXPECT_NE(dynamic_cast<CheckedBackend*>(backend.get()), nullptr);
    EXPECT_EQ(backend->getBackendName(), "shm");
  });
}

// Does nothing, under a name.
class IdleBackend : public c10d::Backend {
 public:
  explicit IdleBackend(std::string name) : Backend(0, 2), name_(std::move(name)) {}
  const std::string getBackendName() const override { return name_; }

 private:
  std::string name_;
};

TEST(CheckedBackend, LeavesTheBackendsOfOtherDevices) {
  const auto peers = std::make_shared<Peers>(std::vector<Peer>(2), 0, nullptr);
  const auto monitor = std::make_shared<GroupMonitor>("some", peers, std::vector<int>{0, 1},
                                                      std::chrono::milliseconds(1000));
  const RankInfo info;
  const GroupRequest request{info, nullptr, monitor, 0, 2, "0-0"};
  const auto of_cpu = c10::make_intrusive<IdleBackend>("shm");
  const auto of_cuda = c10::make_intrusive<IdleBackend>("nccl");
  GroupHandles handles;
  handles.process_group = wrap_backend(request, c10d::ProcessGroup::BackendType::CUSTOM, of_cpu);
  handles.process_group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL,
                                    of_cuda);
  ASSERT_NE(add_checks(request, handles), nullptr);
  c10d::ProcessGroup& group = *handles.process_group;
  EXPECT_EQ(group.getBackend(c10::DeviceType::CUDA).get(), of_cuda.get());
  const auto checked = group.getBackend(c10::DeviceType::CPU);
  EXPECT_NE(dynamic_cast<CheckedBackend*>(checked.get()), nullptr);
}

TEST(CheckedBackend, RefusesOtherValuesOfItsVariable) {
  const auto result = test::run_forked(
      [] {
        World::from_env();
        return 0;
      },
      {.variables = {{"WEFT_CHECK_COLLECTIVES", "yes"}}});
  EXPECT_EQ(result.err, "dist.World: WEFT_CHECK_COLLECTIVES: expected 0 or 1, got 'yes'\n");
}

}  // namespace
}  // namespace weft::dist
