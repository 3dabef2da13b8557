#include "weft/shard/sum_order.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "tests/core/error_text.h"

namespace weft::shard {
namespace {

using testing::error_text;
using Floats = std::vector<float>;

// Numbers whose sum is another in nearly every order: all magnitudes, and pairs that cancel.
Floats adverse_numbers(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  Floats numbers;
  for (int64_t i = 0; i < count; ++i) {
    const float size = std::exp2(static_cast<float>(static_cast<int>(random() % 24) - 12));
    const float number = size * (0.5F + static_cast<float>(random() % 1000) / 1000);
    numbers.push_back(i % 3 == 1 ? -numbers.back() : number);
  }
  return numbers;
}

void follow(const std::vector<SumStep>& steps, Floats& sums) {
  for (const SumStep& step : steps) {
    sums[static_cast<size_t>(step.to)] += sums[static_cast<size_t>(step.from)];
  }
}

// A rank's nodes: each piece summed by itself, then what the plan says.
Floats nodes_of(const SumPlan& plan, const std::vector<Range>& held, const Floats& numbers) {
  Floats own;
  for (const Range& range : held) {
    own.insert(own.end(), numbers.begin() + range.start, numbers.begin() + range.end());
  }
  Floats sums;
  for (const Range& piece : plan.pieces) {
    float sum = 0;
    for (int64_t i = piece.start; i < piece.end(); ++i) sum += own[static_cast<size_t>(i)];
    sums.push_back(sum);
  }
  follow(plan.steps, sums);
  Floats nodes;
  for (const int64_t node : plan.nodes) nodes.push_back(sums[static_cast<size_t>(node)]);
  return nodes;
}

// The sum as all ranks of the layout would get it.
float sum_over_ranks(const SumOrder& order, const Layout& layout, const Floats& numbers) {
  const SumPlan of_first = order.plan(layout, 0);
  Floats slots(static_cast<size_t>(layout.num_ranks() * of_first.slots), NAN);
  for (int64_t rank = 0; rank < layout.num_ranks(); ++rank) {
    const SumPlan plan = order.plan(layout, rank);
    EXPECT_EQ(plan.joins, of_first.joins);
    EXPECT_EQ(plan.result, of_first.result);
    EXPECT_EQ(order.own_part(layout, rank).steps, plan.steps);
    EXPECT_EQ(order.own_part(layout, rank).nodes, plan.nodes);
    const Floats nodes = nodes_of(plan, layout.of(rank), numbers);
    EXPECT_LE(static_cast<int64_t>(nodes.size()), plan.slots);
    std::copy(nodes.begin(), nodes.end(), slots.begin() + rank * plan.slots);
  }
  follow(of_first.joins, slots);
  return slots[static_cast<size_t>(of_first.result)];
}

std::vector<Layout> layouts_of(const Split& split, int64_t size) {
  std::vector<Layout> layouts;
  for (const int64_t n : {2, 4, 8, 1, 3, 5, 6, 7}) {
    if (size / split.unit >= n) layouts.push_back(make_layout(split, size, n, "w"));
  }
  return layouts;
}

TEST(SumOrder, GivesTheSameBitsForAnyNumberOfRanks) {
  for (const int64_t unit : {1, 3, 32}) {
    for (const int64_t units : {1, 2, 3, 7, 8, 9, 14, 32, 48, 77}) {
      const std::vector<Layout> layouts = layouts_of({0, {}, unit}, unit * units);
      const SumOrder order(layouts);
      for (unsigned seed = 0; seed < 20; ++seed) {
        const Floats numbers = adverse_numbers(unit * units, seed);
        const float expected = sum_over_ranks(order, layouts.front(), numbers);
        for (const Layout& layout : layouts) {
          EXPECT_EQ(std::bit_cast<uint32_t>(sum_over_ranks(order, layout, numbers)),
                    std::bit_cast<uint32_t>(expected))
              << units << " units of " << unit << ", " << layout.num_ranks() << " ranks";
        }
      }
    }
  }
}

// Without which the test above would say nothing.
TEST(SumOrder, OtherOrdersGiveOtherBits) {
  const std::vector<Layout> layouts = layouts_of({0, {}, 1}, 48);
  int differing = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Floats numbers = adverse_numbers(48, seed);
    const float one = sum_over_ranks(SumOrder({layouts[3]}), layouts[3], numbers);
    differing += one != sum_over_ranks(SumOrder(layouts), layouts[3], numbers) ? 1 : 0;
  }
  EXPECT_GT(differing, 10);
}

TEST(SumOrder, OfBothWaysToCutHeadsIsOne) {
  std::vector<Layout> layouts;
  for (const int64_t n : {2, 4, 1, 3, 5, 6}) {
    for (const HeadSplit split : {HeadSplit::kEven, HeadSplit::kKv}) {
      layouts.push_back(head_layouts(9, 3, 4, n, split).query);
    }
  }
  const SumOrder order(layouts);
  const Floats numbers = adverse_numbers(36, 4);
  const float expected = sum_over_ranks(order, layouts.front(), numbers);
  for (const Layout& layout : layouts) {
    EXPECT_EQ(sum_over_ranks(order, layout, numbers), expected) << layout.num_ranks();
  }
}

// Two, four and eight ranks share one number each, as they would without an order.
TEST(SumOrder, HalvesHaveOneNodeEach) {
  const std::vector<Layout> layouts = layouts_of({0, {}, 32}, 1536);
  const SumOrder order(layouts);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(order.plan(layouts[i], 0).slots, 1) << i;
  EXPECT_EQ(order.num_pieces(), 20);
  EXPECT_EQ(order.plan(layouts[3], 0).slots, 1);
}

TEST(SumOrder, RefusesCutsThatItDoesNotKnow) {
  const SumOrder order({make_layout({0, {}, 4}, 16, 2, "w"), make_layout({0, {}, 4}, 16, 1, "w")});
  EXPECT_EQ(error_text([&] {
              order.plan(make_layout({0, {}, 4}, 16, 4, "w"), 1);
            }),
            "ConfigError: shard.SumOrder: a cut at 4 of 16 elements, expected one of [0, 8, 16]; "
            "use a number of ranks that was planned for");
  EXPECT_EQ(error_text([&] {
              order.plan(make_layout({0, {}, 4}, 20, 1, "w"), 0);
            }),
            "ShapeError: shard.SumOrder.plan: a layout of 20 elements, expected 16");
  EXPECT_EQ(error_text([] { SumOrder({head_layouts(4, 1, 2, 2).kv}); }),
            "ShapeError: shard.SumOrder: a layout of 2 elements that overlap, expected 2, each on "
            "one rank");
  EXPECT_EQ(error_text([] { SumOrder({}); }),
            "ShapeError: shard.SumOrder: no layouts, expected at least one");
}

}  // namespace
}  // namespace weft::shard
