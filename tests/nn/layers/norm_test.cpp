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

TEST(ShardedRMSNorm, RefusesSizesThatDoNotFit) {
  const dist::Group alone;
  EXPECT_EQ(testing::error_text([&] { ShardedRMSNorm(at::ones({5}), 4, kEps, alone); }),
            "ShapeError: nn.ShardedRMSNorm: weight [5] of a whole of 4; give this rank's part");
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
