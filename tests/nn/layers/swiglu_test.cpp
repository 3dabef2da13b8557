#include "weft/nn/layers/swiglu.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::leaf;
using test::seeded;

TEST(Swiglu, EqualsTheFormulaForwardAndBackward) {
  for (const int64_t width : {1, 7, 64, 1003}) {
    const at::Tensor gate = leaf(seeded({3, width}, 1) * 4), up = leaf(seeded({3, width}, 2));
    const at::Tensor weights = seeded({3, width}, 3);
    const at::Tensor y = at::silu(gate) * up;
    (y * weights).sum().backward();
    for (const auto& [dtype, tolerance] : std::vector<std::pair<at::ScalarType, double>>{
             {at::kFloat, 1e-6}, {at::kBFloat16, 2e-2}, {at::kDouble, 1e-12}}) {
      const at::Tensor g = leaf(gate.to(dtype)), u = leaf(up.to(dtype));
      const at::Tensor got = swiglu(g, u);
      EXPECT_EQ(got.scalar_type(), dtype);
      (got * weights.to(dtype)).sum().backward();
      expect_close(got, y, "y", tolerance);
      expect_close(g.grad(), gate.grad(), "gate", tolerance);
      expect_close(u.grad(), up.grad(), "up", tolerance);
    }
  }
}

TEST(Swiglu, SurvivesLargeNumbers) {
  const at::Tensor gate = at::tensor({-1e4F, -90.F, 0.F, 90.F, 1e4F}), up = at::ones({5});
  EXPECT_TRUE(at::allclose(swiglu(gate, up), at::silu(gate)));
}

TEST(Swiglu, RefusesDifferentShapes) {
  EXPECT_EQ(testing::error_text([] {
              swiglu(at::zeros({2, 3}), at::zeros({2, 4}));
            }),
            "ShapeError: nn.swiglu: gate Float [2, 3] and up Float [2, 4], expected the same");
}

}  // namespace
}  // namespace weft::nn
