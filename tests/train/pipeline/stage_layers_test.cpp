#include "weft/train/pipeline/stage_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/core/error_text.h"

namespace weft::train {
namespace {

using Layers = std::vector<int64_t>;
using weft::testing::error_text;

TEST(StageLayers, AreDealtOutEvenlyTheFirstStagesGettingMore) {
  EXPECT_EQ(balance_layers(3, 1, {}), (Layers{3}));
  EXPECT_EQ(balance_layers(8, 2, {}), (Layers{4, 4}));
  EXPECT_EQ(balance_layers(10, 4, {}), (Layers{3, 3, 2, 2}));
}

TEST(StageLayers, GoToTheStagesWithoutHeadWhereThatCosts) {
  // A head of three layers, and an embedding of one.
  EXPECT_EQ(balance_layers(9, 2, {1, 0, 3}), (Layers{6, 3}));
  EXPECT_EQ(balance_layers(9, 2, {1, 1, 3}), (Layers{6, 3}));
  EXPECT_EQ(balance_layers(10, 2, {1, 1, 3}), (Layers{6, 4}));
  // Larger than all else: one layer all the same.
  EXPECT_EQ(balance_layers(6, 3, {1, 0, 100}), (Layers{3, 2, 1}));
}

// By trying all splits of two and three stages.
TEST(StageLayers, MakeTheCostliestStageAsCheapAsCanBe) {
  const auto cost = [](const Layers& layers, const LayerCosts& costs) {
    double most = 0;
    for (size_t stage = 0; stage < layers.size(); ++stage) {
      double own = costs.layer * static_cast<double>(layers[stage]);
      if (stage == 0) own += costs.before;
      if (stage + 1 == layers.size()) own += costs.behind;
      most = std::max(most, own);
    }
    return most;
  };
  for (int64_t count = 3; count <= 12; ++count) {
    for (const LayerCosts& costs : {LayerCosts{1, 0, 0.4}, {2, 3, 5}, {1, 0, 7.5}}) {
      double least = 1e9;
      for (int64_t a = 1; a < count; ++a) {
        for (int64_t b = 1; a + b < count; ++b) {
          least = std::min(least, cost({a, b, count - a - b}, costs));
        }
      }
      const Layers got = balance_layers(count, 3, costs);
      EXPECT_DOUBLE_EQ(cost(got, costs), least) << count;
      EXPECT_EQ(std::accumulate(got.begin(), got.end(), int64_t{0}), count);
    }
  }
}

TEST(StageLayers, FollowEachOther) {
  EXPECT_EQ(layers_of_stage({2, 1, 4}, 0), (shard::Range{0, 2}));
  EXPECT_EQ(layers_of_stage({2, 1, 4}, 1), (shard::Range{2, 1}));
  EXPECT_EQ(layers_of_stage({2, 1, 4}, 2), (shard::Range{3, 4}));
}

TEST(StageLayers, RefuseWhatDoesNotAddUp) {
  const auto complaint = [](const Layers& layers) {
    return error_text([&] { check_stage_layers(layers, 2, 6, "run.toml:3:1: mesh.pipe_layers"); });
  };
  EXPECT_EQ(complaint({4, 2}), "no error");
  EXPECT_EQ(complaint({2, 2, 2}),
            "ConfigError: run.toml:3:1: mesh.pipe_layers: expected a number for each of 2 stages "
            "(mesh.pipe), got [2, 2, 2]");
  EXPECT_EQ(complaint({4, 3}),
            "ConfigError: run.toml:3:1: mesh.pipe_layers: expected numbers from 1 that add up to "
            "6, the model's layers, got [4, 3] (7); leave it out to balance the stages");
  EXPECT_NE(complaint({6, 0}).find("got [6, 0] (6)"), std::string::npos);
  EXPECT_EQ(error_text([] { balance_layers(2, 3, {}); }),
            "ConfigError: mesh.pipe: expected at most the model's 2 layers, got 3; a stage needs a "
            "layer");
}

}  // namespace
}  // namespace weft::train
