#include "weft/train/flat_layout.h"

#include <gtest/gtest.h>

#include "weft/core/error.h"

namespace weft::train {
namespace {

TEST(FlatLayout, PutsParametersOneAfterAnotherAndPadsForAllRanks) {
  const FlatLayout layout({100, 7, 0, 30}, 2, 3);
  EXPECT_EQ(layout.num_elements(), 137);
  EXPECT_EQ(layout.length(), 192);
  EXPECT_EQ(layout.share_length(), 96);
  EXPECT_EQ(layout.owned_length(), 32);
  EXPECT_EQ(layout.parameter(1), (shard::Range{100, 7}));
  EXPECT_EQ(layout.parameter(3), (shard::Range{107, 30}));
}

TEST(FlatLayout, OwnedPartsAreTheWholeWithoutOverlap) {
  for (const auto& [data, replica] : {std::pair{1, 1}, {3, 1}, {1, 4}, {2, 3}}) {
    const FlatLayout layout({1000, 1}, data, replica);
    int64_t next = 0;
    for (int64_t d = 0; d < data; ++d) {
      EXPECT_EQ(layout.share(d).start, next);
      for (int64_t r = 0; r < replica; ++r) {
        EXPECT_EQ(layout.owned(d, r).start, next);
        next = layout.owned(d, r).end();
      }
      EXPECT_EQ(layout.share(d).end(), next);
    }
    EXPECT_EQ(next, layout.length());
  }
}

TEST(FlatLayout, FindsThePiecesOfARange) {
  const FlatLayout layout({10, 0, 20}, 1, 1);
  const auto pieces = layout.pieces({5, 10});
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].parameter, 0U);
  EXPECT_EQ(pieces[0].elements, (shard::Range{5, 5}));
  EXPECT_EQ(pieces[0].offset, 0);
  EXPECT_EQ(pieces[1].parameter, 2U);
  EXPECT_EQ(pieces[1].elements, (shard::Range{0, 5}));
  EXPECT_EQ(pieces[1].offset, 5);
  EXPECT_TRUE(layout.pieces({30, 2}).empty());
}

TEST(FlatLayout, RefusesAnAxisWithoutRanks) {
  EXPECT_THROW(FlatLayout({1}, 0, 1), core::ConfigError);
  EXPECT_THROW(FlatLayout({-1}, 1, 1), core::ShapeError);
}

}  // namespace
}  // namespace weft::train
