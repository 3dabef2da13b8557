#include "weft/models/decoder/row_cut.h"

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

}  // namespace
}  // namespace weft::models
