#include "weft/nn/linear/quantized_linear.h"

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/nn/linear/dense_linear.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::leaf;
using test::seeded;
using testing::error_text;

quant::AffineTensor quantized(int64_t out, int64_t in, uint64_t seed) {
  return quant::quantize_affine(seeded({out, in}, seed, at::kFloat), 4, 16, at::kFloat);
}

/// Forward, gradient, rows and bytes of a layer around w.
void expect_equals_dense(const quant::QuantizedMatrix& w) {
  const at::Tensor dense = quant::dequantize(w, at::kFloat);
  const at::Tensor b = seeded({6}, 2, at::kFloat), grad = seeded({2, 3, 6}, 4, at::kFloat);
  const at::Tensor x = leaf(seeded({2, 3, 64}, 3, at::kFloat)), x_dense = leaf(x);
  QuantizedLinear linear(w, b);
  const at::Tensor y = linear->forward(x), y_dense = DenseLinear(dense, b)->forward(x_dense);
  expect_close(y, y_dense, "forward", 1e-5);
  y.backward(grad);
  y_dense.backward(grad);
  expect_close(x.grad(), x_dense.grad(), "gradient of the input", 1e-5);
  const at::Tensor ids = at::tensor({5, 0, 1, 5}, at::kLong).view({2, 2});
  expect_close(linear->rows(ids), at::embedding(dense, ids), "rows", 1e-6);
  EXPECT_EQ(linear->weight_bytes(), quant::num_bytes(w));
  EXPECT_TRUE(linear->parameters().empty()) << "a quantized weight is frozen";
}

TEST(QuantizedLinear, EqualsADenseLinearOfTheDequantizedWeight) {
  expect_equals_dense(quantized(6, 64, 1));
  for (const quant::Mode mode : {quant::Mode::kMxfp4, quant::Mode::kMxfp8, quant::Mode::kNvfp4}) {
    expect_equals_dense(quant::quantize_microscaled(seeded({6, 64}, 1, at::kFloat), mode));
  }
}

TEST(QuantizedLinear, NamesTheBuffersOfItsMode) {
  using Names = std::vector<std::string>;
  const at::Tensor b = seeded({6}, 2, at::kFloat);
  EXPECT_EQ(QuantizedLinear(quantized(6, 64, 1), b)->named_buffers().keys(),
            (Names{"weight", "scales", "offsets", "bias"}));
  const auto w = quant::quantize_microscaled(seeded({6, 64}, 1, at::kFloat), quant::Mode::kMxfp4);
  EXPECT_EQ(QuantizedLinear(w)->named_buffers().keys(), (Names{"weight", "scales"}));
}

TEST(QuantizedLinear, BuildsNoGraphWithoutNeed) {
  QuantizedLinear linear(quantized(6, 48, 1));
  EXPECT_FALSE(linear->forward(seeded({1, 48}, 3, at::kFloat)).requires_grad());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(linear->forward(leaf(seeded({1, 48}, 3, at::kFloat))).requires_grad());
}

TEST(QuantizedLinear, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_text([] { QuantizedLinear(quantized(6, 48, 1), at::zeros({5})); }),
            "ShapeError: nn.QuantizedLinear: bias [5], expected [6]");
  EXPECT_EQ(error_text([] {
              QuantizedLinear(quantized(6, 48, 1))->forward(at::zeros({2, 32}));
            }),
            "ShapeError: nn.QuantizedLinear: input [2, 32], expected the last dim to be 48");
  quant::AffineTensor bad = quantized(6, 48, 1);
  bad.bits = 7;
  EXPECT_EQ(error_text([&] { QuantizedLinear{bad}; }),
            "ShapeError: nn.QuantizedLinear: bits, expected one of 2, 3, 4, 5, 6, 8, got 7; "
            "quantize with another number of bits");
}

}  // namespace
}  // namespace weft::nn
