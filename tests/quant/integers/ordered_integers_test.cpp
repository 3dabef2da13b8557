#include "weft/quant/integers/ordered_integers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "weft/core/error.h"

namespace weft::quant {
namespace {

using testing::error_text;

// Two rows of eight 4-bit numbers, 0 to 7 and 8 to 15, in three groups.
OrderedIntegers two_rows() {
  OrderedIntegers w;
  w.numbers = at::tensor({0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe}, at::kByte).view({2, 4});
  w.scales = at::tensor({1.0F, 2.0F, 0.5F, 10.0F, 20.0F, 100.0F}).view({2, 3});
  w.zeros = at::tensor({0.0F, 1.0F, 8.0F, 8.0F, 9.0F, 10.0F}).view({2, 3});
  w.groups = at::tensor({2, 0, 1, 1, 0, 2, 0, 1}, at::kInt);
  return w;
}

std::string ordered_error(const OrderedIntegers& w, at::ScalarType dtype = at::kFloat) {
  return error_text([&] { plain_numbers(w, dtype, "FILE"); });
}

TEST(OrderedIntegers, TakeEachColumnsOwnScaleAndZeroPoint) {
  const at::Tensor expected =
      at::tensor({-4.0F, 1.0F, 2.0F, 4.0F, 4.0F, -1.5F, 6.0F, 12.0F,  //
                  -200.0F, 10.0F, 20.0F, 40.0F, 40.0F, 300.0F, 60.0F, 120.0F})
          .view({2, 8});
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    EXPECT_TRUE(at::equal(plain_numbers(two_rows(), dtype, "FILE"), expected.to(dtype)));
  }
}

TEST(OrderedIntegers, NameWhatDoesNotFit) {
  OrderedIntegers w = two_rows();
  w.groups[3] = -1;
  EXPECT_EQ(ordered_error(w),
            "FormatError: FILE: column 3 is of quant group -1, expected 0 to 2; the file is "
            "damaged");
  w = two_rows();
  w.groups = w.groups.narrow(0, 0, 6);
  EXPECT_EQ(ordered_error(w),
            "ShapeError: FILE: numbers, expected rows of 6 columns of 4 bits, got [2, 4] of Byte; "
            "take the same columns of all parts");
  w = two_rows();
  w.zeros = w.zeros.narrow(1, 0, 2);
  EXPECT_EQ(ordered_error(w),
            "ShapeError: FILE: scales and zero points, expected [2, groups], got [2, 2] of Float; "
            "take the same rows of all parts");
  w = two_rows();
  w.scales[1][2] = 30000.0F;
  EXPECT_EQ(ordered_error(w), "no error");
  EXPECT_EQ(ordered_error(w, at::kHalf),
            "FormatError: FILE: holds numbers that Half can't; use float32");
}

}  // namespace
}  // namespace weft::quant
