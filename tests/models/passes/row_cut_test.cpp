#include "weft/models/passes/row_cut.h"

#include <gtest/gtest.h>

#include "tests/ops/tensor_checks.h"

namespace weft::models {
namespace {

TEST(RowCut, GivesEachRowToOneRank) {
  test::on_ranks([](const dist::Group& group) {
    ASSERT_TRUE(group.size() == 1 || group.shares_memory());
    for (const int64_t rows : {1, 24, 385, 512, 513, 1000}) {
      const RowCut own = RowCut::of(rows, 64, 16, group);
      if (group.size() == 1 || rows <= 384) {
        EXPECT_FALSE(own.is_cut());
        EXPECT_EQ(own.count, rows);
        EXPECT_EQ(own.room, rows);
        continue;
      }
      EXPECT_TRUE(own.is_cut());
      EXPECT_EQ(own.each % 16, 0);
      EXPECT_EQ(own.room, own.each * group.size());
      EXPECT_GE(own.room, rows);
      at::Tensor owners = at::zeros({rows});
      owners.narrow(0, own.first, own.count).fill_(1);
      group.all_reduce(owners);
      EXPECT_TRUE(at::equal(owners, at::ones({rows})));
      EXPECT_TRUE(own.count == 0 || own.first == own.each * group.rank());
    }
  });
}

// 385 rows in runs of 128 are 256, 129 and none on 3 ranks.
TEST(RowCut, BeginsAtAUnitAlsoWhereARankHasNone) {
  test::on_ranks([](const dist::Group& group) {
    for (const int64_t rows : {385, 512, 513, 640}) {
      const RowCut own = RowCut::of(rows, 1024, 128, group);
      EXPECT_EQ(own.first % 128, 0);
      at::Tensor sum = at::tensor({own.is_cut() || group.rank() == 0 ? own.count : 0}, at::kLong);
      group.all_reduce(sum);
      EXPECT_EQ(sum.item<int64_t>(), rows) << group.size();
    }
    if (group.size() == 3 && group.rank() == 2) {
      const RowCut none = RowCut::of(385, 1024, 128, group);
      EXPECT_TRUE(none.is_cut());
      EXPECT_EQ(none.count, 0);
    }
  });
}

TEST(RowCut, LeavesFewRowsOfAWideModelWhole) {
  test::on_ranks([](const dist::Group& group) {
    for (const int64_t rows : {7, 16, 31}) {
      const RowCut own = RowCut::of(rows, 4096, 16, group);
      EXPECT_TRUE(group.size() == 1 || rows >= 16 * group.size() || !own.is_cut());
      if (!own.is_cut()) {
        EXPECT_EQ(own.count, rows);
      }
    }
    // A rank that ended while others still start would count as lost.
    group.barrier();
  });
}

}  // namespace
}  // namespace weft::models
