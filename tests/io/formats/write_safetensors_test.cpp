#include "weft/io/formats/write_safetensors.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>

#include "tests/core/child.h"
#include "tests/core/temp_dir.h"
#include "tests/io/open_error.h"
#include "weft/io/tensor_file.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::replaced;
using testing::TempDir;

TensorToWrite tensor_to_write(const std::string& name, Dtype dtype,
                              const std::vector<int64_t>& shape, const std::string& bytes) {
  return {name, dtype, shape, std::as_bytes(std::span(bytes))};
}

// The bytes that the library `safetensors` 0.8.0 writes for the same tensors, given in this order.
TEST(WriteSafetensors, WritesTheBytesOfTheFormatsOwnLibrary) {
  const TempDir dir;
  const std::string b("\x00\x00\xc0\x3f\x00\x00\x00\xc0", 8);
  const std::string a("\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 24);
  const std::string h("\x00\x3c", 2);
  const std::string c("\7");
  const std::string t("\1");
  write_safetensors(dir.at("m.safetensors"),
                    {tensor_to_write("b", Dtype::kF32, {2}, b),
                     tensor_to_write("a\"é\n", Dtype::kI64, {1, 3}, a),
                     tensor_to_write("c", Dtype::kU8, {}, c),
                     {"a", Dtype::kF32, {0, 4}, {}},
                     tensor_to_write("h", Dtype::kF16, {1}, h),
                     tensor_to_write("t", Dtype::kBool, {1}, t)},
                    {{"format", "pt"}});
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a\"é\n":{"dtype":"I64","shape":[1,3],"data_offsets":[0,24]},)"
      R"("a":{"dtype":"F32","shape":[0,4],"data_offsets":[24,24]},)"
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[24,32]},)"
      R"("h":{"dtype":"F16","shape":[1],"data_offsets":[32,34]},)"
      R"("c":{"dtype":"U8","shape":[],"data_offsets":[34,35]},)"
      R"("t":{"dtype":"BOOL","shape":[1],"data_offsets":[35,36]}}      )";
  EXPECT_EQ(dir.read("m.safetensors"),
            std::string("\x78\1\0\0\0\0\0\0", 8) + header + a + b + h + c + t);
}

TEST(WriteSafetensors, OrdersTypesAsTheFormatsOwnLibrary) {
  const TempDir dir;
  const std::string zeros(8, '\0');
  std::vector<TensorToWrite> tensors;
  for (int i = 0; i <= static_cast<int>(Dtype::kF64); ++i) {
    const auto dtype = static_cast<Dtype>(i);
    tensors.push_back(
        {std::string(info(dtype).name),
         dtype,
         {1},
         std::as_bytes(std::span(zeros)).first(static_cast<size_t>(info(dtype).block_bytes))});
  }
  write_safetensors(dir.at("m.safetensors"), tensors, {});
  std::string order;
  const auto source = TensorFile::open(dir.at("m.safetensors"));
  for (const TensorMeta& meta : source->tensors()) order.append(meta.name).append(" ");
  EXPECT_EQ(order, "U64 I64 F64 F32 U32 I32 BF16 F16 U16 I16 F8_E8M0 F8_E4M3 F8_E5M2 I8 U8 BOOL ");
}

TEST(WriteSafetensors, WithoutTensorsIsAnEmptyHeader) {
  const TempDir dir;
  write_safetensors(dir.at("m.safetensors"), {}, {});
  EXPECT_EQ(dir.read("m.safetensors"), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST(WriteSafetensors, RefusesWhatCannotStandInAFile) {
  const TempDir dir;
  const std::string four = "1234";
  const auto error = [&](const std::vector<TensorToWrite>& tensors,
                         const std::map<std::string, std::string>& metadata = {}) {
    return replaced(error_text([&] { write_safetensors(dir.at("m"), tensors, metadata); }),
                    dir.at("m"), "FILE");
  };
  EXPECT_EQ(error({tensor_to_write("a", Dtype::kF32, {2}, four)}),
            "ShapeError: FILE: tensor 'a': 4 bytes for F32 [2], expected 8");
  EXPECT_EQ(error({tensor_to_write("a", Dtype::kU8, {-4}, four)}),
            "ShapeError: FILE: tensor 'a': U8 [-4], expected a shape of fewer than 2^63 "
            "bytes");
  EXPECT_EQ(error({tensor_to_write("a", Dtype::kQ4_0, {32}, four)}),
            "ConfigError: FILE: tensor 'a': Q4_0, expected a type that safetensors has; convert it "
            "first");
  EXPECT_EQ(error({tensor_to_write("a", Dtype::kU8, {4}, four),
                   tensor_to_write("a", Dtype::kF32, {}, four)}),
            "ConfigError: FILE: tensor 'a' is given twice; rename one");
  EXPECT_EQ(error({tensor_to_write("__metadata__", Dtype::kU8, {4}, four)}),
            "ConfigError: FILE: tensor '__metadata__': a reserved name; rename it");
  EXPECT_EQ(error({tensor_to_write(std::string("a\0", 2), Dtype::kU8, {4}, four)}),
            "ConfigError: FILE: tensor 'a\\x00': a reserved name; rename it");
  EXPECT_EQ(error({tensor_to_write("\xff", Dtype::kU8, {4}, four)}),
            "ConfigError: FILE: a tensor's name or a metadata text is not UTF-8; rename it");
  EXPECT_EQ(error({}, {{"a", "\xff"}}),
            "ConfigError: FILE: a tensor's name or a metadata text is not UTF-8; rename it");
  EXPECT_EQ(dir.num_files(), 0u);
}

TEST(WriteSafetensors, AFailureLeavesTheOldFileAndNothingElse) {
  const TempDir dir;
  const std::string old(100, 'o');
  write_safetensors(dir.at("m"), {tensor_to_write("a", Dtype::kU8, {100}, old)}, {});
  const std::string before = dir.read("m");
  const std::string text = testing::in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{5000, 5000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string data(1 << 20, 'n');
    return error_text([&] {
      write_safetensors(dir.at("m"), {tensor_to_write("a", Dtype::kU8, {1 << 20}, data)}, {});
    });
  });
  EXPECT_EQ(replaced(text, dir.at("m"), "FILE"),
            "IoError: FILE: cannot write at byte 5000: File too large");
  EXPECT_EQ(dir.read("m"), before);
  EXPECT_EQ(dir.num_files(), 1u);
}

}  // namespace
}  // namespace weft::io
