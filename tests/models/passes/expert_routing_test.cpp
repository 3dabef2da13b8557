#include "weft/models/passes/experts/expert_routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

namespace weft::models {
namespace {

using Chosen = std::vector<std::pair<int64_t, float>>;

FloatRows rows_of(const std::vector<std::vector<float>>& numbers) {
  FloatRows rows;
  rows.of(static_cast<int64_t>(numbers.size()), 16);
  for (size_t i = 0; i < numbers.size(); ++i) {
    std::copy(numbers[i].begin(), numbers[i].end(), rows.row(static_cast<int64_t>(i)));
  }
  return rows;
}

// The held experts of a row and their weights.
Chosen experts_of(const ExpertRouting& routing, int64_t row) {
  Chosen chosen;
  routing.for_each_of(row, [&](int64_t slot, float weight) {
    EXPECT_EQ(routing.rows()[static_cast<size_t>(slot)], row);
    size_t group = routing.active().size() - 1;
    while (routing.starts()[group] > slot) --group;
    chosen.emplace_back(routing.active()[group], weight);
  });
  return chosen;
}

void expect_experts(const ExpertRouting& routing, int64_t row, const Chosen& expected) {
  const Chosen chosen = experts_of(routing, row);
  ASSERT_EQ(chosen.size(), expected.size()) << "row " << row;
  for (size_t i = 0; i < chosen.size(); ++i) {
    EXPECT_EQ(chosen[i].first, expected[i].first) << "row " << row;
    EXPECT_NEAR(chosen[i].second, expected[i].second, 1e-6) << "row " << row;
  }
}

constexpr float kLog2 = 0.69314718F;

TEST(ExpertRouting, GroupsRowsByTheExpertsThatTheyTake) {
  const std::vector<int64_t> all = {0, 1, 2, 3};
  // Softmax: 1/8, 1/2, 1/8, 1/4; 1/2, 1/4, 1/8, 1/8; the first of equal ones.
  const FloatRows logits =
      rows_of({{0, 2 * kLog2, 0, kLog2}, {3 * kLog2, 2 * kLog2, kLog2, kLog2}, {1, 1, 1, 1}});
  ExpertRouting routing;
  routing.route(logits, 3, {4, 2, false, all});
  expect_experts(routing, 0, {{1, 0.5F}, {3, 0.25F}});
  expect_experts(routing, 1, {{0, 0.5F}, {1, 0.25F}});
  expect_experts(routing, 2, {{0, 0.25F}, {1, 0.25F}});
  EXPECT_EQ(std::vector<int64_t>(routing.rows().begin(), routing.rows().end()),
            (std::vector<int64_t>{1, 2, 0, 1, 2, 0}));
  routing.route(logits, 3, {4, 2, true, all});
  expect_experts(routing, 0, {{1, 2 / 3.F}, {3, 1 / 3.F}});
}

TEST(ExpertRouting, LeavesOutWhatOtherRanksHold) {
  const std::vector<int64_t> places = {-1, -1, 0, 1};
  const FloatRows logits = rows_of({{0, 2, 1, 3}, {4, 3, 2, 1}});
  ExpertRouting routing;
  routing.route(logits, 2, {4, 2, true, places});
  expect_experts(routing, 0, {{1, 1 / (1 + std::exp(-1.F))}});
  expect_experts(routing, 1, {});
  EXPECT_EQ(routing.rows().size(), 1U);
  routing.route(rows_of({{4, 3, 2, 1}}), 1, {4, 2, true, places});
  EXPECT_TRUE(routing.active().empty() && routing.starts().empty() && routing.rows().empty());
}

// Broken weights give broken numbers and no wrong place in memory.
TEST(ExpertRouting, KeepsWhatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int64_t> all = {0, 1, 2};
  ExpertRouting routing;
  routing.route(rows_of({{nan, nan, nan}, {nan, 1, 2}}), 2, {3, 2, true, all});
  for (const auto& [expert, weight] : experts_of(routing, 0)) EXPECT_TRUE(std::isnan(weight));
  EXPECT_EQ(experts_of(routing, 0).size(), 2U);
  EXPECT_EQ(experts_of(routing, 1).size(), 2U);
}

}  // namespace
}  // namespace weft::models
