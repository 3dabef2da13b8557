#include "weft/shard/split.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "tests/core/error_text.h"
#include "weft/core/error.h"

namespace weft::shard {
namespace {

using testing::error_text;

// The ranges of all ranks, one after the other, cover [0, size) without overlap.
void expect_cover(const std::vector<Range>& ranges, int64_t size) {
  int64_t next = 0;
  for (const Range& range : ranges) {
    EXPECT_EQ(range.start, next);
    EXPECT_GE(range.length, 1);
    next = range.end();
  }
  EXPECT_EQ(next, size);
}

TEST(Part, CoversAllUnitsOnceForAnyNumberOfRanks) {
  for (int64_t n = 1; n <= 8; ++n) {
    for (int64_t units = n; units <= 50; ++units) {
      std::vector<Range> ranges;
      for (int64_t rank = 0; rank < n; ++rank) ranges.push_back(part(units, n, rank));
      expect_cover(ranges, units);
      EXPECT_LE(ranges.front().length - ranges.back().length, 1);
    }
  }
}

TEST(Part, TheFirstRanksHoldOneMore) {
  EXPECT_EQ(part(231, 2, 0), (Range{0, 116}));
  EXPECT_EQ(part(231, 2, 1), (Range{116, 115}));
  EXPECT_EQ(part(10, 4, 0), (Range{0, 3}));
  EXPECT_EQ(part(10, 4, 1), (Range{3, 3}));
  EXPECT_EQ(part(10, 4, 2), (Range{6, 2}));
  EXPECT_EQ(part(10, 4, 3), (Range{8, 2}));
}

TEST(Part, DoesNotOverflow) {
  EXPECT_EQ(part(INT64_MAX, 2, 1), (Range{INT64_MAX / 2 + 1, INT64_MAX / 2}));
  EXPECT_EQ(part(INT64_MAX, INT64_MAX, INT64_MAX - 1), (Range{INT64_MAX - 1, 1}));
}

TEST(Part, RefusesWrongRanksAndEmptyShards) {
  const auto error = [](int64_t units, int64_t n, int64_t rank) {
    return error_text([&] { part(units, n, rank); });
  };
  EXPECT_EQ(error(4, 2, 2), "ConfigError: shard.part: rank 2 of 2, expected 0 <= rank < n");
  EXPECT_EQ(error(4, 2, -1), "ConfigError: shard.part: rank -1 of 2, expected 0 <= rank < n");
  EXPECT_EQ(error(4, 0, 0), "ConfigError: shard.part: rank 0 of 0, expected 0 <= rank < n");
  EXPECT_EQ(error(4, -3, 0), "ConfigError: shard.part: rank 0 of -3, expected 0 <= rank < n");
  EXPECT_EQ(error(3, 4, 0),
            "ConfigError: shard.part: 3 units over 4 ranks leaves a rank with nothing; use 1 to 3 "
            "ranks");
  EXPECT_EQ(error(0, 1, 0), "ConfigError: shard.part: 0 units, expected at least 1");
  EXPECT_EQ(error(-5, 1, 0), "ConfigError: shard.part: -5 units, expected at least 1");
}

TEST(NamedSplit, RangesAreWholeUnits) {
  const NamedSplit ffn{"ffn", 29568, 128};
  EXPECT_EQ(ffn.range(2, 0), (Range{0, 116 * 128}));
  EXPECT_EQ(ffn.range(2, 1), (Range{116 * 128, 115 * 128}));
  EXPECT_EQ(ffn.max_ranks(), 231);
  EXPECT_EQ((NamedSplit{"x", 5, 0}).max_ranks(), 0);
}

TEST(NamedSplit, CoversAllElementsForAnyUnit) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 500; ++round) {
    const int64_t n = 1 + static_cast<int64_t>(random() % 8);
    const int64_t unit = 1 + static_cast<int64_t>(random() % 40);
    const NamedSplit split{"x", unit * (n + static_cast<int64_t>(random() % 60)), unit};
    std::vector<Range> ranges;
    for (int64_t rank = 0; rank < n; ++rank) {
      ranges.push_back(split.range(n, rank));
      EXPECT_EQ(ranges.back().start % unit, 0);
      EXPECT_EQ(ranges.back().length % unit, 0);
    }
    expect_cover(ranges, split.size);
  }
}

TEST(NamedSplit, RefusalsNameTheSplitAndTheMostRanks) {
  const auto error = [](const NamedSplit& split, int64_t n, int64_t rank) {
    return error_text([&] { split.range(n, rank); });
  };
  EXPECT_EQ(error({"ffn", 256, 128}, 3, 0),
            "ConfigError: ffn: 2 units of 128 cannot be cut over 3 ranks; use 1 to 2 ranks");
  EXPECT_EQ(error({"ffn", 100, 32}, 2, 0),
            "ShapeError: ffn: size 100, expected a positive multiple of its unit 32");
  EXPECT_EQ(error({"ffn", 0, 32}, 2, 0),
            "ShapeError: ffn: size 0, expected a positive multiple of its unit 32");
  EXPECT_EQ(error({"ffn", -32, 32}, 2, 0),
            "ShapeError: ffn: size -32, expected a positive multiple of its unit 32");
  EXPECT_EQ(error({"ffn", 100, 0}, 2, 0), "ShapeError: ffn: unit 0, expected at least 1");
  EXPECT_EQ(error({"ffn", 100, 10}, 0, 0), "ConfigError: ffn: rank 0 of 0, expected 0 <= rank < n");
  EXPECT_EQ(error({"ffn", 100, 10}, 2, 2), "ConfigError: ffn: rank 2 of 2, expected 0 <= rank < n");
}

TEST(Slices, CutEachSegmentByItself) {
  // q, k, v of 8 heads and twice 4 kv heads of 10.
  const Split qkv{0, {80, 40, 40}, 10};
  EXPECT_EQ(slices(qkv, 160, 2, 0, "qkv"), (std::vector<Range>{{0, 40}, {80, 20}, {120, 20}}));
  EXPECT_EQ(slices(qkv, 160, 2, 1, "qkv"), (std::vector<Range>{{40, 40}, {100, 20}, {140, 20}}));
  EXPECT_EQ(slices(qkv, 160, 3, 0, "qkv"), (std::vector<Range>{{0, 30}, {80, 20}, {120, 20}}));
  EXPECT_EQ(total_length(slices(qkv, 160, 3, 2, "qkv")), 20 + 10 + 10);
  EXPECT_EQ(total_length({}), 0);
}

TEST(Slices, AllRanksTogetherHoldEachElementOnce) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 300; ++round) {
    const int64_t n = 1 + static_cast<int64_t>(random() % 8);
    Split split{static_cast<int64_t>(random() % 3), {}, 1 + static_cast<int64_t>(random() % 9)};
    int64_t size = 0;
    for (size_t i = random() % 4; i < 4; ++i) {
      split.segments.push_back(split.unit * (n + static_cast<int64_t>(random() % 10)));
      size += split.segments.back();
    }
    std::vector<int> seen(static_cast<size_t>(size), 0);
    for (int64_t rank = 0; rank < n; ++rank) {
      for (const Range& range : slices(split, size, n, rank, "x")) {
        for (int64_t i = range.start; i < range.end(); ++i) ++seen[static_cast<size_t>(i)];
      }
    }
    EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(size), 1));
  }
}

TEST(Slices, WithoutSegmentsAreOneRange) {
  EXPECT_EQ(slices({1, {}, 16}, 96, 4, 1, "w"), (std::vector<Range>{{32, 32}}));
}

TEST(Slices, RefusalsNameTheTensor) {
  const auto error = [](const Split& split, int64_t size, int64_t n) {
    return error_text([&] { slices(split, size, n, 0, "w"); });
  };
  EXPECT_EQ(error({0, {4, 4}, 1}, 9, 2), "ShapeError: w: segments [4, 4] sum to 8, expected 9");
  EXPECT_EQ(error({0, {6, 4}, 4}, 10, 2),
            "ShapeError: w: size 6, expected a positive multiple of its unit 4");
  EXPECT_EQ(error({0, {8, 4}, 4}, 12, 2),
            "ConfigError: w: 1 units of 4 cannot be cut over 2 ranks; use 1 to 1 ranks");
  EXPECT_EQ(error({0, {-5, 10}, 1}, 5, 1),
            "ShapeError: w: segment of -5 in [-5, 10], expected at least 1");
  EXPECT_EQ(error({0, {0, 5}, 1}, 5, 1),
            "ShapeError: w: segment of 0 in [0, 5], expected at least 1");
  EXPECT_EQ(error({0, {INT64_MAX, 1}, 1}, 5, 1),
            "ShapeError: w: segments [9223372036854775807, 1] sum to more than 2^63, expected 5");
  EXPECT_EQ(error({0, {}, 1}, 0, 1), "ShapeError: w: segment of 0 in [0], expected at least 1");
}

}  // namespace
}  // namespace weft::shard
