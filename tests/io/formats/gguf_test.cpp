#include "weft/io/formats/gguf.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/core/temp_dir.h"
#include "tests/io/gguf_builder.h"
#include "tests/io/open_error.h"
#include "weft/io/tensor_file.h"

namespace weft::io {
namespace {

using testing::alignment_key;
using testing::bytes_error;
using testing::f32;
using testing::gguf_key;
using testing::gguf_text;
using testing::GgufBuilder;
using testing::GgufTensor;
using testing::kF32;
using testing::kQ8_0;
using testing::one;
using testing::raw;
using testing::second_at;
using testing::TempDir;
using testing::tensor_text;

TEST(Gguf, ReadsTensorsSlowestDimensionFirst) {
  const TempDir dir;
  GgufBuilder builder;
  builder.keys = {gguf_key("general.name", GgufType::kString, gguf_text("tiny"))};
  builder.tensors = {{"a", {3, 2}, kF32, std::string("012345678901234567890123")},
                     {"q", {64, 2, 1, 1}, kQ8_0, std::string(4 * 34, 'q')},
                     {"s", {}, kF32, "scal"}};
  const auto source = TensorFile::open(dir.write("m.gguf", builder.build()));
  EXPECT_TRUE(source->is_gguf());
  ASSERT_EQ(source->tensors().size(), 3u);
  EXPECT_EQ(source->require("a").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(source->require("q").shape, (std::vector<int64_t>{1, 1, 2, 64}));
  EXPECT_EQ(source->require("q").dtype, Dtype::kQ8_0);
  EXPECT_EQ(source->require("q").num_bytes, 136u);
  EXPECT_EQ(source->require("s").shape, std::vector<int64_t>{});
  EXPECT_EQ(tensor_text(*source, "a"), "012345678901234567890123");
  EXPECT_EQ(tensor_text(*source, "q"), std::string(4 * 34, 'q'));
  EXPECT_EQ(tensor_text(*source, "s"), "scal");
  EXPECT_EQ(std::get<std::string>(source->metadata().at("general.name")), "tiny");
}

TEST(Gguf, EveryTypeHasItsBlockSize) {
  const TempDir dir;
  const std::pair<uint32_t, Dtype> types[] = {
      {0, Dtype::kF32},     {1, Dtype::kF16},    {2, Dtype::kQ4_0},    {3, Dtype::kQ4_1},
      {6, Dtype::kQ5_0},    {7, Dtype::kQ5_1},   {8, Dtype::kQ8_0},    {10, Dtype::kQ2K},
      {11, Dtype::kQ3K},    {12, Dtype::kQ4K},   {13, Dtype::kQ5K},    {14, Dtype::kQ6K},
      {24, Dtype::kI8},     {25, Dtype::kI16},   {26, Dtype::kI32},    {27, Dtype::kI64},
      {28, Dtype::kF64},    {30, Dtype::kBF16},  {16, Dtype::kIQ2XXS}, {17, Dtype::kIQ2XS},
      {18, Dtype::kIQ3XXS}, {19, Dtype::kIQ1S},  {20, Dtype::kIQ4NL},  {21, Dtype::kIQ3S},
      {22, Dtype::kIQ2S},   {23, Dtype::kIQ4XS}, {29, Dtype::kIQ1M},   {34, Dtype::kTQ1_0},
      {35, Dtype::kTQ2_0},  {39, Dtype::kMXFP4}};
  for (const auto& [type, dtype] : types) {
    const auto blocks = static_cast<size_t>(256 / info(dtype).block_elements);
    const size_t bytes = blocks * static_cast<size_t>(info(dtype).block_bytes);
    const auto source = TensorFile::open(
        dir.write("m.gguf", one({"a", {256, 3}, type, std::string(3 * bytes, 'x')})));
    EXPECT_EQ(source->require("a").dtype, dtype);
    EXPECT_EQ(source->require("a").num_bytes, 3 * bytes);
  }
}

TEST(Gguf, AcceptsWhatTheSpecificationAllows) {
  const TempDir dir;
  GgufBuilder second_version;
  second_version.version = 2;
  second_version.tensors = {{"a", {4}, kF32, f32(4)}};
  GgufBuilder aligned;
  aligned.alignment = 64;
  aligned.keys = {alignment_key(64)};
  aligned.tensors = {{"a", {4}, kF32, f32(4)}, {"b", {4}, kF32, f32(4)}};
  const std::string plain = one({"a", {4}, kF32, f32(4)});
  const std::string unpadded = plain.substr(0, plain.size() - 16);
  for (const std::string& file :
       {GgufBuilder{}.build(), second_version.build(), aligned.build(), plain, unpadded,
        plain + "trailing", one({std::string(63, 'n'), {4}, kF32, f32(4)}), second_at(32)}) {
    EXPECT_EQ(bytes_error(dir, "m.gguf", file), "no error");
  }
}

TEST(Gguf, EveryTruncationIsRefused) {
  const TempDir dir;
  GgufBuilder builder;
  builder.keys = {gguf_key("general.name", GgufType::kString, gguf_text("tiny")),
                  gguf_key("list", GgufType::kArray,
                           testing::gguf_array(GgufType::kU32, 20, std::string(80, 'i')))};
  builder.tensors = {{"a", {16}, kF32, f32(16)}, {"b", {8}, kF32, f32(8)}};
  const std::string whole = builder.build();
  ASSERT_EQ(bytes_error(dir, "m.gguf", whole), "no error");
  for (size_t i = 0; i < 64; ++i) {
    const std::string text = bytes_error(dir, "m.gguf", whole.substr(0, whole.size() * i / 64));
    EXPECT_TRUE(text.starts_with("FormatError: FILE: ")) << text;
    EXPECT_NE(text.find("truncated: need "), std::string::npos) << i << ": " << text;
  }
}

TEST(Gguf, AHundredGigabytesOpenWithoutBeingRead) {
  const TempDir dir;
  const uint64_t count = 25'000'000'000;
  const std::string head = one({"a", {count}, kF32, ""});
  const auto source = TensorFile::open(dir.write_sparse("m.gguf", head, head.size() + 4 * count));
  EXPECT_EQ(source->require("a").num_bytes, 4 * count);
}

TEST(Gguf, HeadersBeyondTheLimitAreRefused) {
  const TempDir dir;
  GgufBuilder builder;
  builder.keys = {
      gguf_key("k", GgufType::kArray, testing::gguf_array(GgufType::kU64, 1 << 24, ""))};
  const std::string path = dir.write_sparse("m.gguf", builder.header(), uint64_t{1} << 40);
  EXPECT_EQ(testing::open_error(path),
            "FormatError: FILE: key 'k' at byte 49: the header goes on for 134217728 bytes, past "
            "the limit of 67108864 bytes");
}

}  // namespace
}  // namespace weft::io
