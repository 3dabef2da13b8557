#include <ATen/ATen.h>

#include <numeric>

#include "tests/ops/tensor_checks.h"
#include "tests/support/needs_cuda.h"
#include "weft/cuda/buffer.h"
#include "weft/cuda/graph.h"
#include "weft/cuda/rank_sum.h"

namespace weft::cuda {
namespace {

using dist::Group;

class CudaRankSum : public test::NeedsCuda {};

// NCCL refuses ranks that share a GPU.
bool have_own_gpus(const Group& group) {
  const auto uuid = device_uuid();
  const at::Tensor own = at::tensor({uuid[0], uuid[1]}, at::kLong);
  const std::vector<int64_t> twos(static_cast<size_t>(group.size()), 2);
  const at::Tensor all = group.all_gather(own, 0, twos).view({group.size(), 2});
  return std::get<0>(at::unique_dim(all, 0)).size(0) == group.size();
}

RankSum meet(const Group& group) {
  RankSum::Id id = {};
  if (group.rank() == 0) id = RankSum::make_id();
  at::Tensor shared = at::tensor(at::ArrayRef<int64_t>(id.data(), id.size()), at::kLong);
  group.broadcast(shared, 0);
  std::copy_n(shared.const_data_ptr<int64_t>(), id.size(), id.begin());
  return {id, group.rank(), group.size()};
}

// At once, and recorded: then for the numbers that are there by then.
void check_sums(const Group& group) {
  select_device("test", group.rank());
  if (!have_own_gpus(group)) GTEST_SKIP() << "ranks share a GPU";
  ASSERT_TRUE(RankSum::is_available()) << "libnccl.so.2 is missing";
  const RankSum sum = meet(group);
  const int64_t size = 10000;
  Buffer numbers(size * static_cast<int64_t>(sizeof(float)));
  const Graph graph([&] { sum.add(numbers.as<float>(), size); });
  for (int round = 0; round < 3; ++round) {
    at::Tensor own = at::arange(size, at::kFloat) + static_cast<double>(group.rank() + 10 * round);
    const at::Tensor expected = at::arange(size, at::kFloat) * group.size() +
                                group.size() * (group.size() - 1) / 2 + 10 * round * group.size();
    numbers.upload(own.const_data_ptr(), numbers.num_bytes());
    if (round == 0) {
      sum.add(numbers.as<float>(), size);
    } else {
      graph.launch();
    }
    numbers.download(own.mutable_data_ptr(), numbers.num_bytes());
    EXPECT_TRUE(at::equal(own, expected)) << group.size() << " ranks, round " << round;
  }
}

TEST_F(CudaRankSum, AddsTheNumbersOfAllRanks) { test::on_ranks(check_sums, {1, 2, 3}); }

}  // namespace
}  // namespace weft::cuda
