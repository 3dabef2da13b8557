#include "weft/serve/engine/share_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/run_ranks.h"

namespace weft::serve {
namespace {

using weft::test::run_ranks;

TEST(SharePlan, GivesRankZerosPlanToAllRanksHoweverLongItIs) {
  run_ranks(3, [](dist::World& world) {
    for (const int64_t copies : {0, 2, 500}) {
      StepPlan plan;
      if (world.rank() == 0) {
        for (int64_t i = 0; i < copies; ++i) plan.loads.push_back({i % 4, 128 * i, i});
        plan.parts = {{3, 7, Wanted::kHidden, {5, 6}}, {1, 0, Wanted::kNothing, {9}}};
        plan.parts[0].first_layer = 4;
        plan.parts[0].num_layers = 3;
        plan.parts[0].draw = {UINT64_MAX - 3, 9, 0.7};
        for (int64_t i = 0; i < copies; ++i) plan.stores.push_back({1, i, 2 * i});
      }
      const StepPlan got = share_plan(world.group(), plan, 4, 100);
      EXPECT_FALSE(got.ends);
      ASSERT_EQ(got.parts.size(), 2U);
      EXPECT_EQ(got.parts[0].tokens, (std::vector<int64_t>{5, 6}));
      EXPECT_EQ(std::pair(got.parts[0].first_layer, got.parts[0].num_layers), std::pair(4L, 3L));
      EXPECT_EQ(got.parts[0].draw.seed, UINT64_MAX - 3);
      EXPECT_EQ(got.parts[0].draw.index, 9U);
      EXPECT_EQ(got.parts[0].draw.temperature, 0.7);
      EXPECT_EQ(got.parts[1].draw.seed, 0U);
      EXPECT_TRUE(got.parts[1].is_whole());
      EXPECT_EQ(got.parts[1].slot, 1);
      ASSERT_EQ(std::ssize(got.loads), copies);
      ASSERT_EQ(std::ssize(got.stores), copies);
      if (copies == 0) continue;
      EXPECT_EQ(got.loads.back().start, 128 * (copies - 1));
      EXPECT_EQ(got.stores.back().page, 2 * (copies - 1));
    }
  });
}

}  // namespace
}  // namespace weft::serve
