#include "weft/dist/world.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/run_ranks.h"

namespace weft::dist {
namespace {

TEST(World, ReducesOverAllRanksOnEveryBackend) {
  for (const char* backend : {"auto", "gloo"}) {
    for (int n = 1; n <= 4; ++n) {
      test::run_ranks(n,
                      [&](World& world) {
                        EXPECT_EQ(world.size(), n);
                        at::Tensor x = at::full({3}, world.rank() + 1, at::kFloat);
                        world.group().all_reduce(x);
                        EXPECT_TRUE(at::equal(x, at::full({3}, n * (n + 1) / 2, at::kFloat)));
                      },
                      {.backend = backend});
    }
  }
}

}  // namespace
}  // namespace weft::dist
