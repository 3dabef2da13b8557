#include "weft/nn/linear/dense_linear.h"

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::leaf;
using test::seeded;
using testing::error_text;

TEST(DenseLinear, IsTheMatrixProductPlusBias) {
  const at::Tensor w = seeded({3, 5}, 1), b = seeded({3}, 2), x = seeded({2, 4, 5}, 3);
  DenseLinear linear(w, b);
  expect_close(linear->forward(x), at::matmul(x, w.t()) + b, "with bias");
  expect_close(DenseLinear(w)->forward(x), at::matmul(x, w.t()), "without bias");
  expect_close(linear->rows(at::tensor({2, 0}, at::kLong)), at::stack({w[2], w[0]}), "rows", 0);
  EXPECT_EQ(linear->in_features(), 5);
  EXPECT_EQ(linear->out_features(), 3);
  EXPECT_EQ(linear->weight_bytes(), 3 * 5 * 8);
  EXPECT_TRUE(linear->has_bias());
  EXPECT_FALSE(linear->weight.requires_grad());
  EXPECT_EQ(linear->named_parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
}

TEST(DenseLinear, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_text([] { DenseLinear(at::zeros({3})); }),
            "ShapeError: nn.DenseLinear: weight [3], expected [out, in]");
  EXPECT_EQ(error_text([] {
              DenseLinear(at::zeros({3, 5}), at::zeros({5}));
            }),
            "ShapeError: nn.DenseLinear: bias [5], expected [3]");
  EXPECT_EQ(error_text([] {
              DenseLinear(at::zeros({3, 5}))->forward(at::zeros({2, 3}));
            }),
            "ShapeError: nn.DenseLinear: input [2, 3], expected the last dim to be 5");
}

}  // namespace
}  // namespace weft::nn
