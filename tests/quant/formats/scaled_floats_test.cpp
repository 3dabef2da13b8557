#include "weft/quant/formats/scaled_floats.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace weft::quant {
namespace {

// libtorch's own float8_e4m3fn is the reference.
TEST(ScaledFloats, AreLibtorchsNumbersTimesTheScale) {
  std::vector<uint8_t> codes(256);
  std::iota(codes.begin(), codes.end(), uint8_t{0});
  const at::Tensor numbers = at::from_blob(codes.data(), {256}, at::kFloat8_e4m3fn).to(at::kFloat);
  for (const float scale : {1.0F, 0.0123F, -3.7e-5F, 2.9e30F, 1e-41F, 0.0F}) {
    at::Tensor made = at::empty({256}, at::kFloat);
    scale_e4m3(codes, scale, made.mutable_data_ptr<float>());
    EXPECT_TRUE(at::allclose(made, numbers * scale, 0, 0, /*equal_nan=*/true)) << scale;
    EXPECT_EQ(made.isnan().sum().item<int64_t>(), 2) << scale;
  }
}

}  // namespace
}  // namespace weft::quant
