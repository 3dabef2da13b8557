#include "weft/train/checkpoint/write_weights.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/core/error_text.h"
#include "tests/train/checkpoint/saved_by_hand.h"
#include "weft/io/tensor_file.h"

namespace weft::train {
namespace {

using testing::all_slices;
using testing::cut_wholes;
using testing::CutWhole;
using testing::write_checkpoint;
using weft::testing::error_text;
using weft::testing::TempDir;

template <class Number>
std::vector<Number> stored(const io::TensorFile& file) {
  const io::TensorMeta& meta = file.require("w");
  std::vector<Number> numbers(meta.num_bytes / sizeof(Number));
  file.read_at(meta.file, meta.offset, std::as_writable_bytes(std::span(numbers)));
  return numbers;
}

TEST(WriteWeights, WritesTheWholesOfAnyCut) {
  for (const CutWhole& whole : cut_wholes()) {
    const TempDir dir;
    const TempDir out;
    write_checkpoint(dir, all_slices(whole, 11));
    CheckpointReader reader(dir.path());
    write_weights(reader, io::Dtype::kF32, 1'000'000, out.path());
    const auto file = io::TensorFile::open(out.path());
    EXPECT_EQ(file->require("w").shape, whole.sizes);
    const auto numbers = stored<float>(*file);
    for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], static_cast<float>(i));
  }
}

// More than is in memory at a time; numbers beyond 256 need rounding.
TEST(WriteWeights, RoundsToBfloat16) {
  const TempDir dir;
  const TempDir out;
  write_checkpoint(dir, {{"w", {1100, 1000}, {}, 0, {0, 1'100'000}}});
  CheckpointReader reader(dir.path());
  write_weights(reader, io::Dtype::kBF16, 1'000, out.path());
  const auto numbers = stored<uint16_t>(*io::TensorFile::open(out.path()));
  ASSERT_EQ(numbers.size(), 1'100'000U);
  EXPECT_EQ(numbers[0], 0);
  EXPECT_EQ(numbers[255], 0x437f);
  EXPECT_EQ(numbers[257], 0x4380) << "a tie goes to the even one, 256";
  EXPECT_EQ(numbers[259], 0x4382) << "a tie goes to the even one, 260";
  EXPECT_EQ(numbers[261], 0x4382) << "260";
  // 1,099,999 lies between 1,097,728 and 1,105,920.
  EXPECT_EQ(numbers[1'099'999], 0x4986);
}

TEST(WriteWeights, RefusesOtherTypes) {
  const TempDir dir;
  write_checkpoint(dir, {{"w", {3}, {}, 0, {0, 3}}});
  CheckpointReader reader(dir.path());
  EXPECT_EQ(error_text([&] { write_weights(reader, io::Dtype::kI8, 1000, dir.path()); }),
            "ConfigError: train.write_weights: type I8, expected F32 or BF16");
}

}  // namespace
}  // namespace weft::train
