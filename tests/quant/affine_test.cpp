#include "weft/quant/affine.h"

#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"

namespace weft::quant {
namespace {

using core::ShapeError;
using test::Format;
using test::message_of;
using test::random_affine;
using test::reference_values;

std::string affine_message(const AffineTensor& w) {
  return message_of<ShapeError>([&] { check_affine(w, "loader: q_proj"); });
}

TEST(CheckAffine, AcceptsWhatQuantizeMakes) {
  EXPECT_NO_THROW(check_affine(quantize_affine(at::randn({3, 64}), 4, 32, at::kHalf), "here"));
}

TEST(CheckAffine, RefusesOtherBits) {
  auto w = random_affine({4, 32}, 2, 64);
  w.bits = 7;
  EXPECT_EQ(affine_message(w),
            "loader: q_proj: bits, expected one of 2, 3, 4, 5, 6, 8, got 7; quantize with another "
            "number of bits");
}

TEST(CheckAffine, RefusesGroupsThatDoNotDivideTheColumns) {
  auto w = random_affine({4, 32}, 2, 64);
  w.group_size = 48;
  EXPECT_EQ(affine_message(w),
            "loader: q_proj: group size, expected a divisor of the 64 columns, got 48; check the "
            "number of bits and the group size");
  w.group_size = 0;
  EXPECT_NE(affine_message(w).find("got 0"), std::string::npos);
}

TEST(CheckAffine, RefusesScalesOfAnotherShape) {
  auto w = random_affine({4, 32}, 2, 64);
  w.group_size = 16;
  EXPECT_EQ(affine_message(w),
            "loader: q_proj: scales, expected shape [2, 4] (quant groups of 16 along 64 columns), "
            "got [2, 2]; check the group size");
}

TEST(CheckAffine, RefusesRowsThatEndWithinAnElement) {
  auto w = random_affine({3, 32}, 2, 64);
  w.packed = at::zeros({2, 25}, at::kByte);
  EXPECT_EQ(affine_message(w),
            "loader: q_proj: packed, expected at least one row of whole 3-bit elements, got shape "
            "[2, 25]; check the number of bits");
}

TEST(CheckAffine, RefusesOtherDtypes) {
  auto w = random_affine({4, 32}, 2, 64);
  w.packed = w.packed.to(at::kInt);
  EXPECT_EQ(affine_message(w), "loader: q_proj: packed, expected uint8, got Int; view it as bytes");
  w = random_affine({4, 32}, 2, 64);
  w.scales = w.scales.to(at::kDouble);
  EXPECT_EQ(affine_message(w),
            "loader: q_proj: dtype of scales and offsets, expected float32, float16 or bfloat16, "
            "got Double; convert them");
  w = random_affine({4, 32}, 2, 64);
  w.offsets = w.offsets.to(at::kHalf);
  EXPECT_EQ(affine_message(w),
            "loader: q_proj: offsets, expected the dtype of scales, Float, got Half; convert one "
            "of them");
}

TEST(CheckAffine, RefusesMissingAndStridedParts) {
  auto w = random_affine({4, 32}, 2, 64);
  w.scales = at::Tensor();
  EXPECT_EQ(affine_message(w), "loader: q_proj: scales, expected a tensor, got none; set it");
  w = random_affine({4, 32}, 4, 64);
  w.offsets = at::randn({2, 4}).t();
  EXPECT_EQ(affine_message(w),
            "loader: q_proj: offsets, expected contiguous memory on the CPU, got strides [1, 4] on "
            "cpu; call .cpu().contiguous()");
  w.packed = w.packed[0];
  EXPECT_NE(affine_message(w).find("expected two dimensions"), std::string::npos);
}

TEST(AffineTensor, CountsTheBytesOfAllParts) {
  EXPECT_EQ(random_affine({4, 32, at::kHalf}, 10, 64).num_bytes(), 10 * (32 + 4 + 4));
  EXPECT_EQ(random_affine({4, 32, at::kFloat, true}, 10, 64).num_bytes(), 10 * (32 + 8));
}

TEST(Dequantize, EqualsTheReferenceBitForBit) {
  at::manual_seed(5);
  for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const int64_t group : {8, 16, 32, 64, 128}) {
      for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
        for (const bool symmetric : {false, true}) {
          const Format format{bits, group, dtype, symmetric};
          const auto w = random_affine(format, 5, group * 3);
          EXPECT_TRUE(at::equal(dequantize(w, at::kFloat), reference_values(w))) << format.text();
        }
      }
    }
  }
}

TEST(Dequantize, TakesOddWidthsAndGroups) {
  for (const Format& format : {Format{8, 5}, Format{8, 1}, Format{4, 3}, Format{6, 2}}) {
    const auto w = random_affine(format, 7, format.group_size * 4);
    EXPECT_TRUE(at::equal(dequantize(w, at::kFloat), reference_values(w))) << format.text();
  }
}

TEST(Dequantize, RoundsOnceToHalfTypes) {
  const auto w = random_affine({5, 32}, 3, 64);
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    EXPECT_TRUE(at::equal(dequantize(w, dtype), reference_values(w).to(dtype)));
  }
}

TEST(AffineRows, TakesRowsByNumberInAnyShape) {
  const auto w = random_affine({6, 16, at::kHalf, true}, 11, 48);
  const auto indices = at::randint(11, {2, 3}, at::kLong);
  const auto rows = affine_rows(w, indices);
  EXPECT_EQ(rows.sizes(), (std::vector<int64_t>{2, 3, 48}));
  EXPECT_TRUE(at::equal(rows, reference_values(w).index({indices})));
  EXPECT_EQ(affine_rows(w, at::empty({0}, at::kLong)).sizes(), (std::vector<int64_t>{0, 48}));
}

TEST(AffineRows, RefusesNumbersOutsideTheMatrix) {
  const auto w = random_affine({4, 32}, 11, 64);
  EXPECT_EQ(message_of<ShapeError>([&] { affine_rows(w, at::full({1}, 11, at::kLong)); }),
            "quant.affine_rows: index, expected 0 to 10, got 11; check the vocabulary size");
  EXPECT_EQ(message_of<ShapeError>([&] { affine_rows(w, at::full({1}, -1, at::kLong)); }),
            "quant.affine_rows: index, expected 0 to 10, got -1; check the vocabulary size");
  EXPECT_EQ(message_of<ShapeError>([&] { affine_rows(w, at::zeros({1}, at::kInt)); }),
            "quant.affine_rows: indices, expected int64, got Int; convert them");
}

}  // namespace
}  // namespace weft::quant
