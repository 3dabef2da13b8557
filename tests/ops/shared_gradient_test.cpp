#include "weft/ops/shared_gradient.h"

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"

namespace weft::ops {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::seeded;
using testing::error_text;

// 9 heads over 3 kv heads of 4 features: beyond 3 ranks some kv heads lie on several.
shard::Layout kv_layout(const Group& group, int64_t dim) {
  shard::Layout layout = shard::head_layouts(9, 3, 4, group.size()).kv;
  layout.dim = dim;
  return layout;
}

at::Tensor shard_of(const at::Tensor& whole, const shard::Layout& layout, const Group& group) {
  const shard::Range range = layout.of(group.rank()).front();
  return whole.narrow(layout.dim, range.start, range.length);
}

TEST(SumSharedGradient, AddsWhatTheHoldersOfAnElementFound) {
  on_ranks(
      [](const Group& group) {
        for (const int64_t dim : {0, 1}) {
          const shard::Layout layout = kv_layout(group, dim);
          const at::Tensor whole = seeded({12, 12}, 1);
          at::Tensor expected = at::zeros_like(whole);
          for (int64_t rank = 0; rank < group.size(); ++rank) {
            const shard::Range range = layout.of(rank).front();
            const at::Tensor place = expected.narrow(dim, range.start, range.length);
            place.add_(seeded(place.sizes(), 10 + static_cast<uint64_t>(rank)));
          }
          const at::Tensor x = leaf(shard_of(whole, layout, group));
          const at::Tensor y = sum_shared_gradient(x, layout, group);
          expect_close(y, x, "forward");
          y.backward(seeded(y.sizes(), 10 + static_cast<uint64_t>(group.rank())));
          expect_close(x.grad(), shard_of(expected, layout, group), "gradient");
        }
      },
      {1, 3, 4, 5});
}

TEST(SumSharedGradient, IsNothingWhereNothingOverlaps) {
  on_ranks(
      [](const Group& group) {
        const shard::Layout layout = kv_layout(group, 0);
        const at::Tensor x = leaf(shard_of(seeded({12, 2}, 1), layout, group));
        EXPECT_TRUE(sum_shared_gradient(x, layout, group).is_same(x));
      },
      {1, 2, 3});
}

TEST(SumSharedGradient, RefusesAnotherLength) {
  EXPECT_EQ(error_text([] {
              sum_shared_gradient(at::zeros({3}), shard::contiguous_layout(0, {4}), Group());
            }),
            "ShapeError: ops.sum_shared_gradient: shape [3], expected 4 elements along dim 0");
}

}  // namespace
}  // namespace weft::ops
