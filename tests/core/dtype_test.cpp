#include "weft/core/dtype.h"

#include <gtest/gtest.h>

namespace weft::core {
namespace {

TEST(Dtype, SafetensorsNamesAreOnlyPlainTypes) {
  EXPECT_EQ(dtype_from_safetensors("F32"), Dtype::kF32);
  EXPECT_EQ(dtype_from_safetensors("BF16"), Dtype::kBF16);
  EXPECT_EQ(dtype_from_safetensors("F8_E4M3"), Dtype::kF8E4M3);
  EXPECT_EQ(dtype_from_safetensors("BOOL"), Dtype::kBool);
  for (const char* name : {"", "f32", "F33", "Q4_0", "F4", "C64", "F32 ", "F8_E4M3FNUZ"}) {
    EXPECT_EQ(dtype_from_safetensors(name), std::nullopt) << name;
  }
}

TEST(Dtype, EachNameFindsItsTypeAgain) {
  for (int i = 0; i <= static_cast<int>(Dtype::kF64); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    EXPECT_EQ(dtype_from_safetensors(info(dtype).name), dtype);
    EXPECT_EQ(info(dtype).block_elements, 1);
  }
}

// Bits per weight as ggml's table of types has them.
TEST(Dtype, BlocksHaveTheirBitsPerWeight) {
  const auto bits = [](Dtype dtype) {
    return 8.0 * static_cast<double>(info(dtype).block_bytes) /
           static_cast<double>(info(dtype).block_elements);
  };
  EXPECT_EQ(bits(Dtype::kQ4_0), 4.5);
  EXPECT_EQ(bits(Dtype::kQ4_1), 5.0);
  EXPECT_EQ(bits(Dtype::kQ5_0), 5.5);
  EXPECT_EQ(bits(Dtype::kQ5_1), 6.0);
  EXPECT_EQ(bits(Dtype::kQ8_0), 8.5);
  EXPECT_EQ(bits(Dtype::kQ2K), 2.625);
  EXPECT_EQ(bits(Dtype::kQ3K), 3.4375);
  EXPECT_EQ(bits(Dtype::kQ4K), 4.5);
  EXPECT_EQ(bits(Dtype::kQ5K), 5.5);
  EXPECT_EQ(bits(Dtype::kQ6K), 6.5625);
  EXPECT_EQ(bits(Dtype::kIQ2XXS), 2.0625);
  EXPECT_EQ(bits(Dtype::kIQ2XS), 2.3125);
  EXPECT_EQ(bits(Dtype::kIQ3XXS), 3.0625);
  EXPECT_EQ(bits(Dtype::kIQ1S), 1.5625);
  EXPECT_EQ(bits(Dtype::kIQ4NL), 4.5);
  EXPECT_EQ(bits(Dtype::kIQ3S), 3.4375);
  EXPECT_EQ(bits(Dtype::kIQ2S), 2.5625);
  EXPECT_EQ(bits(Dtype::kIQ4XS), 4.25);
  EXPECT_EQ(bits(Dtype::kIQ1M), 1.75);
  EXPECT_EQ(bits(Dtype::kTQ1_0), 1.6875);
  EXPECT_EQ(bits(Dtype::kTQ2_0), 2.0625);
  EXPECT_EQ(bits(Dtype::kMXFP4), 4.25);
  EXPECT_EQ(bits(Dtype::kBF16), 16);
  EXPECT_EQ(bits(Dtype::kF64), 64);
}

TEST(Dtype, GgufNumbersThatWereRemovedOrAreUnknownAreNone) {
  EXPECT_EQ(dtype_from_gguf(0), Dtype::kF32);
  EXPECT_EQ(dtype_from_gguf(14), Dtype::kQ6K);
  EXPECT_EQ(dtype_from_gguf(16), Dtype::kIQ2XXS);
  EXPECT_EQ(dtype_from_gguf(23), Dtype::kIQ4XS);
  EXPECT_EQ(dtype_from_gguf(30), Dtype::kBF16);
  for (const uint32_t type :
       {4U, 5U, 9U, 15U, 31U, 32U, 33U, 36U, 37U, 38U, 40U, 999U, UINT32_MAX}) {
    EXPECT_EQ(dtype_from_gguf(type), std::nullopt) << type;
  }
}

TEST(Dtype, NumpyTorchAndTvmShareNames) {
  EXPECT_EQ(dtype_from_array_name("float8_e4m3fn"), Dtype::kF8E4M3);
  EXPECT_EQ(dtype_from_array_name("bfloat16"), Dtype::kBF16);
  for (const char* name : {"", "F32", "Q4_0", "float7"}) {
    EXPECT_EQ(dtype_from_array_name(name), std::nullopt) << name;
  }
}

// Each number and each name leads back to its row.
TEST(Dtype, RowsAreFoundByAllTheirNames) {
  for (int i = 0; i <= static_cast<int>(Dtype::kMXFP4); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    const DtypeInfo& row = info(dtype);
    if (row.gguf != kNotInGguf) {
      EXPECT_EQ(dtype_from_gguf(static_cast<uint32_t>(row.gguf)), dtype) << row.name;
    }
    if (!row.array_name.empty()) {
      EXPECT_EQ(dtype_from_array_name(row.array_name), dtype) << row.name;
    }
  }
}

}  // namespace
}  // namespace weft::core
