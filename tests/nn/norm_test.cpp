#include "weft/nn/norm.h"

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"

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

}  // namespace
}  // namespace weft::nn
