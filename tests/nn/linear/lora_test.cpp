#include "weft/nn/linear/lora.h"

#include "tests/core/error_text.h"
#include "tests/nn/linear_cases.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::leaf;
using test::seeded;
using testing::error_text;

TEST(LoraLinear, AddsTheScaledLowRankProduct) {
  const auto base = dense_case(6, 5)();
  const auto lora = lora_case(dense_case(6, 5), at::kDouble)();
  const at::Tensor a = seeded({3, 5}, 5), b = seeded({6, 3}, 6), x = seeded({4, 5}, 7);
  const at::Tensor w = base->dense_weight() + 0.5 * at::matmul(b, a);
  expect_close(lora->forward(x), at::linear(x, w, base->bias_or_undefined()), "forward");
  expect_close(lora->dense_weight(), w, "weight");
  const at::Tensor ids = at::tensor({5, 0, 5}, at::kLong);
  expect_close(lora->rows(ids), at::embedding(w, ids), "rows");
}

TEST(LoraLinear, TrainsTheAdapterAlone) {
  const auto lora = lora_case(dense_case(6, 5), at::kDouble)();
  const at::Tensor x = leaf(seeded({4, 5}, 7));
  lora->forward(x).sum().backward();
  for (const auto& item : lora->named_parameters()) {
    const bool is_adapter = item.key() == "lora_a" || item.key() == "lora_b";
    EXPECT_EQ(item.value().requires_grad(), is_adapter) << item.key();
    EXPECT_EQ(item.value().grad().defined(), is_adapter) << item.key();
  }
  EXPECT_TRUE(x.grad().defined());
}

TEST(LoraLinear, MergesAndGivesTheBaseBackBitForBit) {
  for (const MakeLinear& base : {dense_case(6, 64, at::kFloat), quantized_case(6, 64, 32)}) {
    const auto made = lora_case(base, at::kFloat)();
    auto& lora = dynamic_cast<LoraLinearImpl&>(*made);
    const at::Tensor x = seeded({4, 64}, 7, at::kFloat), y = lora.forward(x);
    lora.merge();
    EXPECT_TRUE(lora.is_merged());
    expect_close(lora.forward(x), y, "merged", 1e-5);
    lora.unmerge();
    EXPECT_TRUE(lora.forward(x).equal(y));
    EXPECT_TRUE(lora.base()->dense_weight().equal(base()->dense_weight()));
  }
}

TEST(LoraLinear, RefusesFactorsThatDoNotFit) {
  EXPECT_EQ(error_text([] {
              LoraLinear(dense_case(6, 5)(), at::zeros({3, 5}), at::zeros({6, 2}), 1.0);
            }),
            "ShapeError: nn.LoraLinear: A [3, 5] and B [6, 2], expected [r, 5] and [6, r]");
}

}  // namespace
}  // namespace weft::nn
