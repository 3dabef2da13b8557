#include "weft/nn/linear/panel_linear.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/linear.h"
#include "weft/nn/linear/quantized_linear.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::seeded;
using testing::error_text;

quant::AffineTensor make_weight(int64_t out, int64_t in, int64_t group_size) {
  return quant::quantize_affine(seeded({out, in}, 1, at::kFloat), 4, group_size, at::kHalf);
}

TEST(PanelLinear, ComputesWhatTheQuantizedLinearDoesButForRounding) {
  const at::Tensor bias = seeded({20}, 2, at::kFloat), x = seeded({2, 3, 64}, 3, at::kFloat);
  const auto w = make_weight(20, 64, 32);
  QuantizedLinear quantized(w, bias);
  PanelLinear panels(quant::to_panels(w), bias);
  const at::Tensor expected = quantized->forward(x);
  expect_close(panels->forward(x), expected, "y", 0.02);
  EXPECT_TRUE(at::equal(panels->dense_weight(), quantized->dense_weight()));
  const at::Tensor indices = at::tensor({3, 19}, at::kLong);
  EXPECT_TRUE(at::equal(panels->rows(indices), quantized->rows(indices)));
  EXPECT_EQ(panels->in_features(), 64);
  EXPECT_EQ(panels->out_features(), 20);
}

class Model : public torch::nn::Module {
 public:
  Model() {
    const auto tied = std::make_shared<QuantizedLinearImpl>(make_weight(32, 64, 32));
    first = register_module("first", Linear(tied));
    second = register_module("second", Linear(tied));
    dense = register_module("dense", Linear(DenseLinear(seeded({32, 64}, 5, at::kBFloat16)).ptr()));
    fine = register_module("fine", Linear(QuantizedLinear(make_weight(32, 48, 16)).ptr()));
  }
  Linear first{nullptr}, second{nullptr}, dense{nullptr}, fine{nullptr};
};

TEST(PanelLinear, ReplacesWhatFitsAndKeepsWhatIsTied) {
  Model model;
  const at::Tensor x = seeded({2, 48}, 3, at::kFloat), before = model.fine->forward(x);
  EXPECT_EQ(put_in_panels(model), 2);
  EXPECT_NE(std::dynamic_pointer_cast<PanelLinearImpl>(model.first->inner()), nullptr);
  EXPECT_EQ(model.first->inner(), model.second->inner());
  EXPECT_NE(std::dynamic_pointer_cast<PanelLinearImpl>(model.dense->inner()), nullptr);
  EXPECT_TRUE(at::equal(model.fine->forward(x), before));
  EXPECT_EQ(put_in_panels(model), 0);
}

TEST(PanelLinear, RefusesGradients) {
  PanelLinear linear(quant::to_panels(make_weight(20, 64, 32)));
  EXPECT_EQ(error_text([&] {
              linear->forward(test::leaf(at::ones({1, 64})));
            }),
            "ConfigError: nn.PanelLinear: a gradient: expected a weight of the file's order; do it "
            "before nn::put_in_panels");
}

}  // namespace
}  // namespace weft::nn
