#include "weft/io/tensor_file_builder.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/core/error_text.h"

namespace weft::io {
namespace {

using testing::error_text;

TEST(TensorFileBuilder, MakesAHeaderThatNoFileHas) {
  TensorFileBuilder builder("sizes");
  builder.add_header("a", Dtype::kF32, {2, 3});
  builder.add_header("b", Dtype::kBF16, {5});
  const auto file = builder.finish();
  EXPECT_EQ(file->path(), "sizes");
  EXPECT_FALSE(file->is_gguf());
  EXPECT_EQ(file->require("b").shape, (std::vector<int64_t>{5}));
  EXPECT_EQ(file->require("b").offset, 24U);
  EXPECT_EQ(file->require("b").num_bytes, 10U);
  std::array<std::byte, 4> bytes{};
  EXPECT_EQ(error_text([&] { file->read_at(0, 0, bytes); }),
            "InternalError: io.TensorFile.read_at: 4 bytes at byte 0 of file 0 are outside of it");
}

TEST(TensorFileBuilder, RefusesHeadersTwiceOrTooLarge) {
  TensorFileBuilder builder("sizes");
  builder.add_header("a", Dtype::kF32, {2, 3});
  EXPECT_EQ(error_text([&] { builder.add_header("a", Dtype::kF32, {1}); }),
            "FormatError: sizes: tensor 'a' twice, expected it once");
  EXPECT_EQ(error_text([&] {
              builder.add_header("b", Dtype::kF32, {int64_t{1} << 40, 1 << 30});
            }),
            "FormatError: sizes: tensor 'b': shape [1099511627776, 1073741824] does not fit in "
            "memory");
}

}  // namespace
}  // namespace weft::io
