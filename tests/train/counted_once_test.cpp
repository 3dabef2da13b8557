#include "weft/train/counted_once.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "weft/shard/heads.h"

namespace weft::train {
namespace {

// How often each element of the whole is counted by all ranks, their shards cut into `parts`.
std::map<int64_t, int> counts(const std::vector<int64_t>& sizes, const shard::Layout& cut,
                              int64_t parts) {
  std::map<int64_t, int> counted;
  const auto dim = static_cast<size_t>(cut.dim);
  const int64_t rows = dim == 0 ? 1 : sizes[0];
  const int64_t inner = dim == 0 ? sizes[1] : 1;
  for (int64_t rank = 0; rank < cut.num_ranks(); ++rank) {
    std::vector<int64_t> positions;
    for (const shard::Range& range : cut.of(rank)) {
      for (int64_t i = range.start; i < range.end(); ++i) positions.push_back(i);
    }
    const auto length = static_cast<int64_t>(positions.size());
    const int64_t elements = rows * length * inner;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t start = elements * part / parts;
      Slice slice{"w", sizes, cut, rank, {start, elements * (part + 1) / parts - start}};
      for (const shard::Range& range : counted_once(slice)) {
        for (int64_t e = range.start; e < range.end(); ++e) {
          const int64_t position = positions[static_cast<size_t>(e / inner % length)];
          ++counted[(e / (length * inner) * cut.size + position) * inner + e % inner];
        }
      }
    }
  }
  return counted;
}

void expect_each_once(const std::vector<int64_t>& sizes, const shard::Layout& cut) {
  for (const int64_t parts : {1, 3}) {
    const auto counted = counts(sizes, cut, parts);
    EXPECT_EQ(static_cast<int64_t>(counted.size()), sizes[0] * sizes[1]);
    for (const auto& [element, times] : counted) EXPECT_EQ(times, 1) << "element " << element;
  }
}

TEST(CountedOnce, CountsReplicatedKvHeadsOnce) {
  for (const int64_t n : {2, 4, 6}) {
    shard::Layout cut = shard::head_layouts(6, 2, 4, n).kv;
    expect_each_once({8, 5}, cut);
    cut.dim = 1;
    expect_each_once({5, 8}, cut);
  }
}

TEST(CountedOnce, CountsRangesThatOverlapInPart) {
  shard::Layout cut{0, 9, {{{0, 4}, {6, 2}}, {{2, 5}}, {{0, 9}}}};
  expect_each_once({9, 2}, cut);
}

TEST(CountedOnce, CountsAWholeParameterOnTheFirstRankAlone) {
  EXPECT_EQ(counted_once({"norm", {8}, std::nullopt, 0, {2, 6}}),
            (std::vector<shard::Range>{{2, 6}}));
  EXPECT_TRUE(counted_once({"norm", {8}, std::nullopt, 1, {2, 6}}).empty());
}

}  // namespace
}  // namespace weft::train
