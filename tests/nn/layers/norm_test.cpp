#include "weft/nn/layers/norm.h"

#include <ATen/ops/rms_norm.h>

#include "tests/core/error_text.h"
#include "tests/nn/layer_checks.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::leaf;
using test::seeded;

constexpr double kEps = 1e-2;

at::Tensor formula(const at::Tensor& x, const at::Tensor& weight) {
  return x * weight / at::sqrt(at::mean(x * x, -1, true) + kEps);
}

TEST(RMSNorm, EqualsTheFormulaForwardAndBackward) {
  const at::Tensor x64 = leaf(seeded({2, 3, 64}, 1) * 0.1), w64 = leaf(seeded({64}, 2));
  const at::Tensor grad = seeded({2, 3, 64}, 3);
  const at::Tensor expected = formula(x64, w64);
  expected.backward(grad);
  RMSNorm norm(w64.detach().to(at::kFloat), kEps, true);
  const at::Tensor x = leaf(x64.detach().to(at::kFloat));
  const at::Tensor y = norm->forward(x);
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  expect_close(y, expected, "forward", 1e-6);
  y.backward(grad.to(at::kFloat));
  expect_close(x.grad(), x64.grad(), "gradient of the input", 1e-6);
  expect_close(norm->weight.grad(), w64.grad(), "gradient of the weight", 1e-6);
}

TEST(UnitNorm, EqualsTheFormulaForwardAndBackward) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = leaf(seeded({3, 2, 5}, 1, type)), whole = leaf(x.to(at::kDouble));
    const at::Tensor grad = seeded({3, 2, 5}, 2);
    const at::Tensor expected = whole / at::sqrt((whole * whole).mean(-1, true) + kEps);
    expected.backward(grad);
    const at::Tensor y = unit_norm(x, kEps);
    y.backward(grad.to(type));
    expect_close(y, expected, "forward", 1e-6);
    expect_close(x.grad(), whole.grad(), "gradient", 1e-6);
  }
}

TEST(RMSNorm, RoundsHalfTypesOnce) {
  const at::Tensor x = seeded({3, 64}, 1, at::kBFloat16), w = seeded({64}, 2, at::kFloat);
  const at::Tensor y = RMSNorm(w, kEps)->forward(x);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  const at::Tensor exact = formula(x.to(at::kDouble), w.to(at::kDouble));
  EXPECT_LE(((y.to(at::kDouble) - exact).abs() / exact.abs()).max().item<double>(), 1.0 / 256);
}

TEST(RMSNorm, RefusesAWeightThatIsNoVector) {
  EXPECT_EQ(testing::error_text([] {
              RMSNorm(at::zeros({2, 3}), kEps);
            }),
            "ShapeError: nn.RMSNorm: weight [2, 3], expected [D]");
}

// Of torch, on the whole, in float64: output and gradients for x [2, T, D].
struct WholeNorm {
  WholeNorm(const at::Tensor& x_in, const at::Tensor& w_in, const at::Tensor& grad)
      : x(leaf(x_in.to(at::kDouble))), w(leaf(w_in.to(at::kDouble))) {
    y = at::rms_norm(x, w.sizes(), w, kEps);
    y.backward(grad.to(at::kDouble));
  }
  at::Tensor x;
  at::Tensor w;
  at::Tensor y;
};

TEST(SequenceParallelRMSNorm, EqualsTheWholeAndSumsTheWeightsGradient) {
  test::on_ranks([](const dist::Group& group) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const double tolerance = test::layer_tolerance(dtype);
      const at::Tensor x_all = seeded({2, 7, 24}, 1, dtype), w_all = seeded({24}, 2, dtype);
      const at::Tensor grad = seeded({2, 7, 24}, 3, dtype);
      const WholeNorm whole(x_all, w_all, grad);
      SequenceParallelRMSNorm norm(w_all.clone(), kEps, group, true);
      const at::Tensor x = leaf(test::piece(x_all, 1, group));
      const at::Tensor y = norm->forward(x);
      EXPECT_EQ(y.scalar_type(), dtype);
      expect_close(y, test::piece(whole.y, 1, group), "output", tolerance);
      y.backward(test::piece(grad, 1, group));
      expect_close(x.grad(), test::piece(whole.x.grad(), 1, group), "input", tolerance);
      expect_close(norm->weight.grad(), whole.w.grad(), "weight", tolerance);
      test::expect_equal_on_all_ranks(norm->weight.grad(), group, "gradient of the weight");
    }
  });
}

TEST(HeadRMSNorm, EqualsTheWholeAndSumsTheWeightsGradientOverTheRanksHeads) {
  test::on_ranks([](const dist::Group& group) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      const double tolerance = test::layer_tolerance(dtype);
      const at::Tensor x_all = seeded({2, 5, 7, 24}, 1, dtype), w_all = seeded({24}, 2, dtype);
      const at::Tensor grad = seeded({2, 5, 7, 24}, 3, dtype);
      const WholeNorm whole(x_all, w_all, grad);
      HeadRMSNorm norm(w_all.clone(), kEps, group, true);
      const at::Tensor x = leaf(test::piece(x_all, 2, group));
      const at::Tensor y = norm->forward(x);
      EXPECT_EQ(y.scalar_type(), dtype);
      expect_close(y, test::piece(whole.y, 2, group), "output", tolerance);
      y.backward(test::piece(grad, 2, group));
      expect_close(x.grad(), test::piece(whole.x.grad(), 2, group), "input", tolerance);
      expect_close(norm->weight.grad(), whole.w.grad(), "weight", tolerance);
      test::expect_equal_on_all_ranks(norm->weight.grad(), group, "gradient of the weight");
    }
  });
}

TEST(HeadRMSNorm, RefusesHeadsOfAnotherSize) {
  HeadRMSNorm norm(at::ones({4}), kEps, dist::Group());
  EXPECT_EQ(testing::error_text([&] {
              norm->forward(at::ones({1, 2, 3, 5}));
            }),
            "ShapeError: nn.HeadRMSNorm: input [1, 2, 3, 5], expected [B, T, heads, 4]");
}

TEST(ShardedRMSNorm, EqualsTheWholeOverADividedDim) {
  test::on_ranks([](const dist::Group& group) {
    for (const auto dtype : test::layer_dtypes()) {
      const double tolerance = test::layer_tolerance(dtype);
      const at::Tensor x_all = seeded({2, 3, 25}, 1, dtype), w_all = seeded({25}, 2, dtype);
      const at::Tensor grad = seeded({2, 3, 25}, 3, dtype);
      const WholeNorm whole(x_all, w_all, grad);
      ShardedRMSNorm norm(test::piece(w_all, 0, group), 25, kEps, group, true);
      const at::Tensor x = leaf(test::piece(x_all, -1, group));
      const at::Tensor y = norm->forward(x);
      EXPECT_EQ(y.scalar_type(), dtype);
      expect_close(y, test::piece(whole.y, -1, group), "output", tolerance);
      y.backward(test::piece(grad, -1, group));
      expect_close(x.grad(), test::piece(whole.x.grad(), -1, group), "input", tolerance);
      expect_close(norm->weight.grad(), test::piece(whole.w.grad(), 0, group), "weight", tolerance);
    }
  });
}

// This rank's part of `whole` along its last dim.
at::Tensor part_of(const at::Tensor& whole, const shard::Layout& layout, const dist::Group& group) {
  std::vector<at::Tensor> parts;
  for (const shard::Range& range : layout.of(group.rank())) {
    parts.push_back(whole.detach().narrow(-1, range.start, range.length));
  }
  return at::cat(parts, -1);
}

// The loss is the sum over the ranks of what each makes of its own part: an element that two ranks
// hold is in it twice.
TEST(ShardedRMSNorm, CountsFeaturesOnceThatSeveralRanksHold) {
  test::on_ranks([](const dist::Group& group) {
    const shard::Layout layout = shard::head_layouts(6, 2, 5, group.size()).kv;
    at::Tensor copies = at::zeros({10}, at::kDouble);
    for (const auto& ranges : layout.ranges) {
      for (const auto& range : ranges) copies.narrow(0, range.start, range.length).add_(1);
    }
    const at::Tensor x_all = seeded({2, 3, 10}, 1), w_all = seeded({10}, 2);
    const at::Tensor grad = seeded({2, 3, 10}, 3);
    const WholeNorm whole(x_all, w_all, grad * copies);
    ShardedRMSNorm norm(part_of(w_all, layout, group).clone(), layout, kEps, group, true);
    const at::Tensor x = leaf(part_of(x_all, layout, group));
    const at::Tensor y = norm->forward(x);
    expect_close(y, part_of(whole.y, layout, group), "output");
    y.backward(part_of(grad, layout, group));
    expect_close(norm->weight.grad(), part_of(whole.w.grad(), layout, group), "weight");
    // Copies have parts of the input's gradient.
    at::Tensor d_x = at::zeros_like(x_all);
    int64_t start = 0;
    for (const auto& range : layout.of(group.rank())) {
      d_x.narrow(-1, range.start, range.length).add_(x.grad().narrow(-1, start, range.length));
      start += range.length;
    }
    group.all_reduce(d_x);
    expect_close(d_x, whole.x.grad(), "input");
  });
}

TEST(ShardedRMSNorm, RefusesSizesThatDoNotFit) {
  const dist::Group alone;
  EXPECT_EQ(testing::error_text([&] { ShardedRMSNorm(at::ones({5}), 4, kEps, alone); }),
            "ShapeError: nn.ShardedRMSNorm: weight [5] of a whole of 4; give this rank's part");
  EXPECT_EQ(testing::error_text([&] {
              ShardedRMSNorm(at::ones({5}), shard::contiguous_layout(0, {6}), kEps, alone);
            }),
            "ShapeError: nn.ShardedRMSNorm: weight [5], expected this rank's 6 of 6");
  ShardedRMSNorm norm(at::ones({5}), 9, kEps, alone);
  EXPECT_EQ(
      testing::error_text([&] {
        norm->forward(at::ones({2, 9}));
      }),
      "ShapeError: nn.ShardedRMSNorm: input [2, 9], expected the last dim to be this rank's 5 "
      "of 9");
  EXPECT_EQ(testing::error_text([&] {
              SequenceParallelRMSNorm(at::ones({2, 2}), kEps, alone);
            }),
            "ShapeError: nn.SequenceParallelRMSNorm: weight [2, 2], expected [D]");
}

}  // namespace
}  // namespace weft::nn
