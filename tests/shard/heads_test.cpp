#include "weft/shard/heads.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/core/error_text.h"
#include "weft/core/error.h"

namespace weft::shard {
namespace {

using testing::error_text;

struct Model {
  int64_t heads;
  int64_t kv_heads;
};

constexpr Model kModels[] = {{9, 3}, {8, 8}, {8, 1}, {32, 8}, {40, 10}, {28, 4}, {14, 2}, {64, 8}};

void expect_covered(const Model& model, int64_t n, HeadSplit split) {
  const int64_t heads_per_kv = model.heads / model.kv_heads;
  int64_t next = 0;
  for (int64_t rank = 0; rank < n; ++rank) {
    const HeadShard shard = shard_heads(model.heads, model.kv_heads, n, rank, split);
    EXPECT_EQ(shard.heads.start, next);
    EXPECT_GE(shard.heads.length, 1);
    next = shard.heads.end();
    ASSERT_EQ(static_cast<int64_t>(shard.kv_of_head.size()), shard.heads.length);
    for (int64_t i = 0; i < shard.heads.length; ++i) {
      const int64_t local = shard.kv_of_head[static_cast<size_t>(i)];
      ASSERT_TRUE(local >= 0 && local < shard.kv_heads.length);
      EXPECT_EQ(shard.kv_heads.start + local, (shard.heads.start + i) / heads_per_kv);
    }
  }
  EXPECT_EQ(next, model.heads);
}

TEST(ShardHeads, QueryHeadsAreCoveredOnceAndReadTheirOwnKvHead) {
  for (const Model& model : kModels) {
    for (int64_t n = 1; n <= 8; ++n) {
      expect_covered(model, n, HeadSplit::kKv);
      expect_covered(model, n, HeadSplit::kEven);
    }
  }
}

TEST(ShardHeads, KvHeadsAreHeldOnceUpToTheirNumber) {
  for (const auto& [heads, kv_heads] : kModels) {
    for (int64_t n = 1; n <= std::min<int64_t>(8, kv_heads); ++n) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < n; ++rank) {
        const Range kv = shard_heads(heads, kv_heads, n, rank).kv_heads;
        EXPECT_EQ(kv.start, next);
        next = kv.end();
      }
      EXPECT_EQ(next, kv_heads);
    }
  }
}

TEST(ShardHeads, NineHeadsOnTwoRanksAreSixAndThree) {
  const HeadShard first = shard_heads(9, 3, 2, 0);
  EXPECT_EQ(first.heads, (Range{0, 6}));
  EXPECT_EQ(first.kv_heads, (Range{0, 2}));
  EXPECT_EQ(first.kv_of_head, (std::vector<int64_t>{0, 0, 0, 1, 1, 1}));
  const HeadShard second = shard_heads(9, 3, 2, 1);
  EXPECT_EQ(second.heads, (Range{6, 3}));
  EXPECT_EQ(second.kv_heads, (Range{2, 1}));
  EXPECT_EQ(second.kv_of_head, (std::vector<int64_t>{0, 0, 0}));
}

TEST(ShardHeads, DealtOutEvenlyNineHeadsOnTwoRanksAreFiveAndFour) {
  const HeadShard first = shard_heads(9, 3, 2, 0, HeadSplit::kEven);
  EXPECT_EQ(first.heads, (Range{0, 5}));
  EXPECT_EQ(first.kv_heads, (Range{0, 2}));
  EXPECT_EQ(first.kv_of_head, (std::vector<int64_t>{0, 0, 0, 1, 1}));
  const HeadShard second = shard_heads(9, 3, 2, 1, HeadSplit::kEven);
  EXPECT_EQ(second.heads, (Range{5, 4}));
  EXPECT_EQ(second.kv_heads, (Range{1, 2}));
  EXPECT_EQ(second.kv_of_head, (std::vector<int64_t>{0, 1, 1, 1}));
}

int64_t most_heads(const Model& model, int64_t n, HeadSplit split) {
  int64_t most = 0;
  for (int64_t rank = 0; rank < n; ++rank) {
    const HeadShard shard = shard_heads(model.heads, model.kv_heads, n, rank, split);
    most = std::max(most, shard.heads.length + shard.kv_heads.length);
  }
  return most;
}

// Where query heads would cross more kv heads than they save, these stay whole: 32 heads of 8 kv
// heads over 3 ranks would be 11, 11, 10 over 3, 4, 3 instead of 12, 12, 8 over 3, 3, 2.
TEST(ShardHeads, DealtOutEvenlyNoRankHasMoreToDo) {
  for (const Model& model : kModels) {
    for (int64_t n = 1; n <= 8; ++n) {
      const int64_t even = most_heads(model, n, HeadSplit::kEven);
      const int64_t by_kv = most_heads(model, n, HeadSplit::kKv);
      EXPECT_LE(even, by_kv) << model.heads << " heads on " << n;
      if (even < by_kv) continue;
      for (int64_t rank = 0; rank < n; ++rank) {
        EXPECT_EQ(shard_heads(model.heads, model.kv_heads, n, rank, HeadSplit::kEven).heads,
                  shard_heads(model.heads, model.kv_heads, n, rank).heads);
      }
    }
  }
  EXPECT_EQ(shard_heads(32, 8, 3, 1, HeadSplit::kEven).heads, (Range{12, 12}));
  EXPECT_EQ(most_heads({32, 8}, 6, HeadSplit::kEven), 8);
  EXPECT_EQ(most_heads({32, 8}, 6, HeadSplit::kKv), 10);
}

TEST(ShardHeads, MoreRanksThanKvHeadsReplicateThem) {
  // 9 heads over 4 ranks are 3, 2, 2, 2; rank 1 reads heads 3 and 4 of kv head 1, rank 2 both.
  EXPECT_EQ(shard_heads(9, 3, 4, 0).kv_heads, (Range{0, 1}));
  EXPECT_EQ(shard_heads(9, 3, 4, 1).kv_heads, (Range{1, 1}));
  const HeadShard third = shard_heads(9, 3, 4, 2);
  EXPECT_EQ(third.heads, (Range{5, 2}));
  EXPECT_EQ(third.kv_heads, (Range{1, 2}));
  EXPECT_EQ(third.kv_of_head, (std::vector<int64_t>{0, 1}));
  for (int64_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(shard_heads(8, 1, 8, rank).kv_heads, (Range{0, 1}));
  }
}

TEST(ShardHeads, RefusesWhatCannotBeCut) {
  const auto error = [](int64_t heads, int64_t kv_heads, int64_t n, int64_t rank) {
    return error_text([&] { shard_heads(heads, kv_heads, n, rank); });
  };
  EXPECT_EQ(
      error(9, 2, 1, 0),
      "ConfigError: shard.shard_heads: 9 heads over 2 kv heads; expected a positive multiple");
  EXPECT_EQ(
      error(4, 8, 1, 0),
      "ConfigError: shard.shard_heads: 4 heads over 8 kv heads; expected a positive multiple");
  EXPECT_EQ(
      error(0, 0, 1, 0),
      "ConfigError: shard.shard_heads: 0 heads over 0 kv heads; expected a positive multiple");
  EXPECT_EQ(
      error(9, 3, 10, 0),
      "ConfigError: shard.shard_heads: 9 heads cannot be cut over 10 ranks; use 1 to 9 ranks");
  EXPECT_EQ(error(9, 3, 0, 0),
            "ConfigError: shard.shard_heads: 9 heads cannot be cut over 0 ranks; use 1 to 9 ranks");
  EXPECT_EQ(error(9, 3, 2, 2), "ConfigError: shard.part: rank 2 of 2, expected 0 <= rank < n");
}

}  // namespace
}  // namespace weft::shard
