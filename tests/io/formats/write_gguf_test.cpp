#include "weft/io/formats/write_gguf.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/io/gguf_builder.h"
#include "tests/io/open_error.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::replaced;
using testing::TempDir;

std::span<const std::byte> value_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(GgufWriter, WritesTheBytesOfTheSpecification) {
  const TempDir dir;
  const std::string a(24, 'a'), b(8, 'b');
  GgufWriter writer(dir.at("w.gguf"),
                    {{"n", GgufType::kU32, int64_t{7}}, {"t", GgufType::kString, std::string("x")}},
                    {{"a", Dtype::kF32, {2, 3}}, {"b", Dtype::kF16, {4}}});
  writer.write(value_bytes(a));
  writer.write(value_bytes(b));
  writer.commit();
  testing::GgufBuilder builder;
  builder.keys = {testing::gguf_key("n", GgufType::kU32, testing::raw<uint32_t>(7)),
                  testing::gguf_key("t", GgufType::kString, testing::gguf_text("x"))};
  builder.tensors = {{"a", {3, 2}, 0, a}, {"b", {4}, 1, b}};
  EXPECT_EQ(dir.read("w.gguf"), builder.build());
}

TEST(GgufWriter, TakesATensorInPieces) {
  const TempDir dir;
  const std::string a = "abcdefghijklmnopqrstuvwx", b(8, 'b');
  const std::vector<TensorSpec> tensors = {{"a", Dtype::kF32, {2, 3}}, {"b", Dtype::kF16, {4}}};
  GgufWriter whole(dir.at("whole.gguf"), {}, tensors);
  whole.write(value_bytes(a));
  whole.write(value_bytes(b));
  whole.commit();
  GgufWriter pieces(dir.at("pieces.gguf"), {}, tensors);
  size_t start = 0;
  for (const size_t size : {size_t{5}, size_t{0}, size_t{11}, size_t{8}}) {
    pieces.write(std::as_bytes(std::span(a).subspan(start, size)));
    start += size;
  }
  pieces.write(value_bytes(b));
  pieces.commit();
  EXPECT_EQ(dir.read("pieces.gguf"), dir.read("whole.gguf"));
}

TEST(GgufWriter, RefusesBytesBeyondATensorAndTensorsThatAreNotWhole) {
  const TempDir dir;
  const auto error = [&](const std::vector<size_t>& sizes) {
    return replaced(error_text([&] {
                      GgufWriter writer(dir.at("w.gguf"), {}, {{"a", Dtype::kF32, {2, 3}}});
                      for (const size_t size : sizes) {
                        writer.write(value_bytes(std::string(size, 'a')));
                      }
                      writer.commit();
                    }),
                    dir.at("w.gguf"), "FILE");
  };
  EXPECT_EQ(error({20, 5}), "InternalError: FILE: tensor 'a': 5 bytes behind 20 for [2, 3]");
  EXPECT_EQ(error({20}), "InternalError: FILE: 0 of 1 tensors written");
  EXPECT_EQ(error({24, 1}), "InternalError: FILE: a tensor too many");
  EXPECT_EQ(dir.num_files(), 0U);
}

TEST(GgufWriter, IsReadBackWithEveryKindOfValue) {
  const TempDir dir;
  GgufWriter writer(dir.at("w.gguf"),
                    {{"flag", GgufType::kBool, true},
                     {"real", GgufType::kF32, 0.5},
                     {"texts", GgufType::kString, std::vector<std::string>{"a", ""}},
                     {"types", GgufType::kI32, std::vector<int64_t>{1, -3}}},
                    {});
  writer.commit();
  const auto file = TensorFile::open(dir.at("w.gguf"));
  EXPECT_EQ(std::get<bool>(file->metadata().at("flag")), true);
  EXPECT_EQ(std::get<double>(file->metadata().at("real")), 0.5);
  EXPECT_EQ(std::get<std::vector<std::string>>(file->metadata().at("texts")),
            (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(file->metadata().at("types")),
            (std::vector<int64_t>{1, -3}));
}

TEST(GgufWriter, RefusesWhatCannotStandInAFile) {
  const TempDir dir;
  const auto error = [&](const std::vector<TensorSpec>& tensors) {
    return replaced(error_text([&] { GgufWriter(dir.at("w.gguf"), {}, tensors); }),
                    dir.at("w.gguf"), "FILE");
  };
  EXPECT_EQ(error({{"a", Dtype::kF32, {}}}),
            "ConfigError: FILE: tensor 'a': [], expected 1 to 4 dims and a name of 1 to 63 bytes");
  EXPECT_EQ(error({{std::string(64, 'n'), Dtype::kF32, {1}}}),
            "ConfigError: FILE: tensor '" + std::string(64, 'n') +
                "': [1], expected 1 to 4 dims and a name of 1 to 63 bytes");
  EXPECT_EQ(error({{"a", Dtype::kU32, {1}}}),
            "ConfigError: FILE: tensor 'a': U32, expected a type that GGUF has; convert it first");
  EXPECT_EQ(error({{"a", Dtype::kF32, {1}}, {"a", Dtype::kF32, {1}}}),
            "ConfigError: FILE: tensor 'a' is given twice; rename one");
  EXPECT_EQ(dir.num_files(), 0U);
}

}  // namespace
}  // namespace weft::io
