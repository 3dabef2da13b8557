#include <limits>

#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"
#include "weft/quant/affine.h"

namespace weft::quant {
namespace {

using core::ShapeError;
using test::Golden;
using test::message_of;

constexpr int64_t kAffineRows = 6;
constexpr int64_t kAffineColumns = 128;

/// Quantizes the matrix of a golden file and compares all parts with what MLX made of it.
void expect_same_as_mlx(int64_t bits, int64_t group, at::ScalarType dtype, const char* suffix) {
  const auto name = "mlx_b" + std::to_string(bits) + "_g" + std::to_string(group) + suffix;
  SCOPED_TRACE(name);
  Golden golden(name);
  const auto w = golden.take({kAffineRows, kAffineColumns}, at::kFloat);
  const AffineTensor expected{bits, group,
                              golden.take({kAffineRows, kAffineColumns * bits / 8}, at::kByte),
                              golden.take({kAffineRows, kAffineColumns / group}, dtype),
                              golden.take({kAffineRows, kAffineColumns / group}, dtype)};
  const auto values = golden.take({kAffineRows, kAffineColumns}, at::kFloat);
  ASSERT_TRUE(golden.is_at_end());
  const auto actual = quantize_affine(w, bits, group, dtype);
  EXPECT_TRUE(at::equal(actual.packed, expected.packed));
  EXPECT_TRUE(at::equal(actual.scales, expected.scales));
  EXPECT_TRUE(at::equal(actual.offsets, expected.offsets));
  EXPECT_TRUE(at::equal(dequantize(expected, at::kFloat), values));
}

TEST(QuantizeAffine, EqualsMlxBitForBit) {
  for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const int64_t group : {32, 64, 128}) {
      expect_same_as_mlx(bits, group, at::kFloat, "_f32.bin");
    }
  }
}

TEST(QuantizeAffine, EqualsMlxWithHalfScales) {
  expect_same_as_mlx(4, 64, at::kHalf, "_f16.bin");
  expect_same_as_mlx(4, 64, at::kBFloat16, "_bf16.bin");
}

TEST(QuantizeAffine, ErrorIsAtMostOneScale) {
  at::manual_seed(6);
  const auto w = at::randn({32, 256});
  for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const int64_t group : {32, 64, 128}) {
      const auto q = quantize_affine(w, bits, group, at::kFloat);
      const auto bound = q.scales.abs().repeat_interleave(group, 1) + 1e-6;
      EXPECT_TRUE(((dequantize(q, at::kFloat) - w).abs() <= bound).all().item<bool>())
          << bits << " bits, group " << group;
    }
  }
}

TEST(QuantizeAffine, TakesAnyFloatingTypeAndStrides) {
  const auto w = at::randn({64, 8}).to(at::kBFloat16);
  const auto expected = quantize_affine(w.t().to(at::kFloat).contiguous(), 4, 32, at::kFloat);
  EXPECT_TRUE(at::equal(quantize_affine(w.t(), 4, 32, at::kFloat).packed, expected.packed));
}

TEST(QuantizeAffine, NamesWhatItRefuses) {
  const auto w = at::randn({2, 64});
  const auto message = [](const at::Tensor& w, int64_t bits, int64_t group, at::ScalarType dtype) {
    return message_of<ShapeError>([&] { quantize_affine(w, bits, group, dtype); });
  };
  EXPECT_EQ(message(w, 1, 32, at::kFloat),
            "quant.quantize_affine: bits, expected one of 2, 3, 4, 5, 6, 8, got 1; quantize with "
            "another number of bits");
  EXPECT_EQ(message(w, 4, 48, at::kFloat),
            "quant.quantize_affine: group size, expected a divisor of the 64 columns, got 48; use "
            "another group size");
  EXPECT_EQ(message(at::randn({2, 12}), 3, 12, at::kFloat),
            "quant.quantize_affine: columns, expected rows of whole bytes, got 12 columns of 3 "
            "bits; use a multiple of 8 columns or 8 bits");
  EXPECT_EQ(message(at::ones({2, 64}, at::kLong), 4, 32, at::kFloat),
            "quant.quantize_affine: w, expected a floating matrix [out, in], got [2, 64] of Long; "
            "flatten and convert it");
  EXPECT_EQ(message(w, 4, 32, at::kDouble),
            "quant.quantize_affine: dtype of scales and offsets, expected float32, float16 or "
            "bfloat16, got Double; convert them");
}

TEST(QuantizeAffine, RefusesNumbersThatAreNotFinite) {
  auto w = at::randn({2, 64});
  w[1][3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(message_of<ShapeError>([&] { quantize_affine(w, 4, 32, at::kFloat); }),
            "quant.quantize_affine: w[1, 3], expected a finite number, got nan; look for the step "
            "that made it");
  w[1][3] = 1e6F;
  EXPECT_EQ(message_of<ShapeError>([&] { quantize_affine(w, 4, 32, at::kHalf); }),
            "quant.quantize_affine: scale[1, 0], expected a finite number, got -inf; use float32 "
            "or bfloat16 scales");
}

}  // namespace
}  // namespace weft::quant
