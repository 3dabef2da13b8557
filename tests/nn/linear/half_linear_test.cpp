#include "weft/nn/linear/half_linear.h"

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/nn/linear/dense_linear.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::leaf;
using test::seeded;
using testing::error_text;

// Large enough to be widened in several pieces, of which the last is smaller.
TEST(HalfLinear, ComputesWithTheSameNumbersInFloat32) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor w = seeded({1700, 700}, 1).to(type), b = seeded({1700}, 2).to(at::kFloat);
    const at::Tensor x = seeded({2, 3, 700}, 3).to(at::kFloat);
    HalfLinear half(w, b);
    DenseLinear dense(w.to(at::kFloat), b);
    const at::Tensor y = half->forward(x);
    EXPECT_EQ(y.scalar_type(), at::kFloat);
    expect_close(y, dense->forward(x), "with bias", 1e-5);
    expect_close(HalfLinear(w)->forward(x), at::matmul(x, w.to(at::kFloat).t()), "without", 1e-5);
    const at::Tensor indices = at::tensor({5, 0, 1699}, at::kLong);
    EXPECT_TRUE(at::equal(half->rows(indices), dense->rows(indices)));
    EXPECT_TRUE(at::equal(half->dense_weight(), dense->dense_weight()));
    EXPECT_EQ(half->weight_bytes(), 1700 * 700 * 2);
    EXPECT_EQ(half->in_features(), 700);
    EXPECT_EQ(half->out_features(), 1700);
  }
}

TEST(HalfLinear, PassesGradientsToItsInput) {
  const at::Tensor w = seeded({4, 6}, 1).to(at::kBFloat16);
  const at::Tensor x = leaf(seeded({2, 6}, 2).to(at::kFloat));
  const at::Tensor g = seeded({2, 4}, 3).to(at::kFloat);
  HalfLinear(w)->forward(x).backward(g);
  expect_close(x.grad(), at::matmul(g, w.to(at::kFloat)), "gradient", 1e-6);
}

TEST(HalfLinear, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_text([] {
              HalfLinear(at::zeros({3, 5}));
            }),
            "ConfigError: nn.HalfLinear: weight of Float, expected Half or BFloat16; use "
            "DenseLinear");
  EXPECT_EQ(error_text([] { HalfLinear(at::zeros({3}, at::kHalf)); }),
            "ShapeError: nn.HalfLinear: weight [3], expected [out, in]");
  EXPECT_EQ(error_text([] {
              HalfLinear(at::zeros({3, 5}, at::kHalf))->forward(at::zeros({2, 3}));
            }),
            "ShapeError: nn.HalfLinear: input [2, 3], expected the last dim to be 5");
}

}  // namespace
}  // namespace weft::nn
