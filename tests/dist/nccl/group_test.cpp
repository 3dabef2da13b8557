// Needs GPUs: `ctest -L gpu` on a machine that has some, with a build that has NCCL.
#include "weft/dist/nccl/group.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/backends.h"
#include "tests/support/run_ranks.h"

namespace weft::dist {
namespace {

class NcclOnGpus : public ::testing::Test {
 protected:
  void SetUp() override { test::skip_or_fail_without("nccl"); }
};

TEST_F(NcclOnGpus, SumsTensorsOfEveryDevice) {
  const int devices = at::detail::getCUDAHooks().deviceCount();
  ASSERT_GE(devices, 1) << "a build with NCCL on a machine without a GPU";
  const int ranks = std::min(devices, 4);
  test::run_ranks(
      ranks,
      [](World& world) {
        for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
          const at::Device device(at::kCUDA, static_cast<int8_t>(world.info().local_rank));
          at::Tensor x =
              at::full({1000}, world.rank() + 1, at::TensorOptions(dtype).device(device));
          world.group().all_reduce(x);
          const int n = world.size();
          EXPECT_TRUE(x.cpu().eq(n * (n + 1) / 2).all().item<bool>()) << dtype;
        }
      },
      {.backend = "nccl"});
}

}  // namespace
}  // namespace weft::dist
