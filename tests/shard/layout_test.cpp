#include "weft/shard/layout.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/core/error_text.h"

namespace weft::shard {
namespace {

using testing::error_text;

// The shards laid end to end, then the layout's own way back.
std::vector<int64_t> there_and_back(const Layout& layout) {
  std::vector<int64_t> shards;
  for (const auto& ranges : layout.ranges) {
    for (const Range& range : ranges) {
      for (int64_t i = range.start; i < range.end(); ++i) shards.push_back(i);
    }
  }
  std::vector<int64_t> whole;
  for (const Range& range : layout.gather_ranges()) {
    whole.insert(whole.end(), shards.begin() + range.start, shards.begin() + range.end());
  }
  return whole;
}

std::vector<int64_t> counting(int64_t size) {
  std::vector<int64_t> numbers(static_cast<size_t>(size));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(Layout, GathersBackToTheWholeForAnyRanksAndSegments) {
  for (int64_t n = 1; n <= 5; ++n) {
    for (const auto& segments :
         std::vector<std::vector<int64_t>>{{}, {40}, {10, 20, 10}, {30, 10}}) {
      for (const int64_t unit : {1, 2}) {
        const Layout layout = make_layout({1, segments, unit}, 40, n, "w");
        EXPECT_EQ(there_and_back(layout), counting(40)) << n << " ranks, unit " << unit;
        EXPECT_FALSE(layout.overlaps());
      }
    }
  }
}

TEST(Layout, OfKvHeadsOverlapsBeyondOneRankPerHead) {
  const HeadLayouts two = head_layouts(9, 3, 4, 2);
  EXPECT_EQ(two.query.lengths(), (std::vector<int64_t>{24, 12}));
  EXPECT_EQ(two.kv.lengths(), (std::vector<int64_t>{8, 4}));
  EXPECT_FALSE(two.kv.overlaps());
  const HeadLayouts four = head_layouts(9, 3, 4, 4);
  EXPECT_TRUE(four.kv.overlaps());
  EXPECT_EQ(there_and_back(four.kv), counting(12));
  EXPECT_EQ(there_and_back(four.query), counting(36));
}

TEST(Layout, OfKvHeadsOverlapsWhereQueryHeadsAreDealtOut) {
  const HeadLayouts two = head_layouts(9, 3, 4, 2, HeadSplit::kEven);
  EXPECT_EQ(two.query.lengths(), (std::vector<int64_t>{20, 16}));
  EXPECT_EQ(two.kv.lengths(), (std::vector<int64_t>{8, 8}));
  EXPECT_TRUE(two.kv.overlaps());
  EXPECT_EQ(there_and_back(two.kv), counting(12));
  EXPECT_EQ(there_and_back(two.query), counting(36));
}

TEST(Layout, KnowsTheLongestRunThatIsNeverCut) {
  const Layout layout = make_layout({1, {}, 24}, 192, 3, "w");
  EXPECT_EQ(layout.common_run(64), 8);
  EXPECT_EQ(contiguous_layout(1, {64, 128}).common_run(64), 64);
}

TEST(Layout, RefusesRanksThatWouldHoldNothing) {
  EXPECT_EQ(error_text([] {
              make_layout({0, {}, 4}, 8, 3, "nn.shard_linear: wq");
            }),
            "ConfigError: nn.shard_linear: wq: 2 units of 4 cannot be cut over 3 ranks; use 1 to 2 "
            "ranks");
  EXPECT_EQ(error_text([] {
              make_layout({0, {}, 4}, 8, 0, "wq");
            }),
            "ConfigError: wq: rank 0 of 0, expected 0 <= rank < n");
}

TEST(Layout, RefusesHolesAndRangesOutside) {
  EXPECT_EQ(error_text([] {
              check_layout({0, 8, {{{0, 4}}, {{5, 3}}}}, "wk");
            }),
            "ShapeError: wk: elements 4 to 5 are held by no rank; give every element to one");
  EXPECT_EQ(error_text([] {
              check_layout({0, 8, {{{0, 4}}, {{4, 3}}}}, "wk");
            }),
            "ShapeError: wk: elements 7 to 8 are held by no rank; give every element to one");
  EXPECT_EQ(error_text([] {
              check_layout({0, 8, {{{0, 9}}}}, "wk");
            }),
            "ShapeError: wk: range of 9 from 0, expected a part of 0 to 8");
}

}  // namespace
}  // namespace weft::shard
