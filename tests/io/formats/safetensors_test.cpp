#include "weft/io/formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/core/temp_dir.h"
#include "tests/io/open_error.h"
#include "tests/io/safetensors_builder.h"
#include "weft/io/tensor_file.h"

namespace weft::io {
namespace {

using testing::braces;
using testing::safetensors_bytes;
using testing::TempDir;
using testing::tensor_json;
using testing::tensor_text;

std::shared_ptr<const TensorFile> open_bytes(const TempDir& dir, const std::string& bytes) {
  return TensorFile::open(dir.write("m.safetensors", bytes));
}

TEST(Safetensors, ReadsNamesTypesShapesAndBytes) {
  const TempDir dir;
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\",\"x\":\"\"}," +
                             tensor_json("b", "F32", "[2,1]", "[4,12]") + "," +
                             tensor_json("a", "I8", "[4]", "[0,4]") + "}";
  const auto source = open_bytes(dir, safetensors_bytes(header, "abcdEFGHIJKL"));
  EXPECT_FALSE(source->is_gguf());
  EXPECT_EQ(source->path(), dir.at("m.safetensors"));
  ASSERT_EQ(source->tensors().size(), 2u);
  EXPECT_EQ(source->tensors()[0].name, "a");
  const TensorMeta& b = source->require("b");
  EXPECT_EQ(b.dtype, Dtype::kF32);
  EXPECT_EQ(b.shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(b.num_bytes, 8u);
  EXPECT_EQ(b.offset, 8 + header.size() + 4);
  EXPECT_EQ(tensor_text(*source, "a"), "abcd");
  EXPECT_EQ(tensor_text(*source, "b"), "EFGHIJKL");
  ASSERT_EQ(source->metadata().size(), 2u);
  EXPECT_EQ(std::get<std::string>(source->metadata().at("format")), "pt");
}

// What the format's own library accepts, 0.8.0.
TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  const TempDir dir;
  const std::string a = tensor_json("a", "F32", "[1]", "[0,4]");
  const std::string bytes4(4, '\0');
  for (
      const std::string& file : {
          safetensors_bytes("{}"),
          safetensors_bytes("{\"__metadata__\":null}"),
          safetensors_bytes("{\"__metadata__\":{}}"),
          safetensors_bytes(braces(tensor_json("a", "F32", "[]", "[0,4]")), bytes4),
          safetensors_bytes(braces(a) + "     ", bytes4),
          safetensors_bytes(core::join(" \n\t", braces(a)), bytes4),
          safetensors_bytes(braces(a) + " ", bytes4),
          safetensors_bytes(braces(tensor_json("", "F32", "[1]", "[0,4]")), bytes4),
          safetensors_bytes(braces(tensor_json("a", "BOOL", "[1]", "[0,1]")), "\x02"),
          safetensors_bytes(braces(tensor_json("a", "F8_E8M0", "[4]", "[0,4]")), bytes4),
          safetensors_bytes(braces(
              tensor_json("a", "F32", "[0,4611686018427387904,4611686018427387904]", "[0,0]"))),
          safetensors_bytes(
              R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":{"y":[null,{"z":1.5}]}}})",
              bytes4),
          safetensors_bytes(
              R"({"a":{"x":[[1],[]],"data_offsets":[0,4],"dtype":"F32","y":"t","shape":[1]}})",
              bytes4),
          safetensors_bytes(braces(a + "," + tensor_json("z", "F32", "[0]", "[4,4]") + "," +
                                   tensor_json("b", "F32", "[1]", "[4,8]")),
                            bytes4 + bytes4),
      }) {
    EXPECT_EQ(testing::bytes_error(dir, "m.safetensors", file), "no error") << file;
  }
}

TEST(Safetensors, EveryTypeHasItsSize) {
  const TempDir dir;
  const std::pair<const char*, size_t> types[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},  {"F64", 8}, {"I64", 8}, {"U64", 8}};
  for (const auto& [name, bytes] : types) {
    const std::string offsets = core::join("[0,", 3 * bytes, "]");
    const auto source =
        open_bytes(dir, safetensors_bytes(braces(tensor_json("a", name, "[3]", offsets)),
                                          std::string(3 * bytes, 'x')));
    EXPECT_EQ(info(source->require("a").dtype).name, name);
    EXPECT_EQ(source->require("a").num_bytes, 3 * bytes);
  }
}

TEST(Safetensors, ATensorAtAnOddPlaceReadsRight) {
  const TempDir dir;
  const std::string header = braces(tensor_json("u", "U8", "[1]", "[0,1]") + "," +
                                    tensor_json("f", "F32", "[1]", "[1,5]")) +
                             " ";
  const float value = 1.25F;
  std::string data(5, '\0');
  std::memcpy(data.data() + 1, &value, 4);
  const auto source = open_bytes(dir, safetensors_bytes(header, data));
  float got = 0;
  std::memcpy(&got, tensor_text(*source, "f").data(), 4);
  EXPECT_EQ(got, value);
}

TEST(Safetensors, AHundredGigabytesOpenWithoutBeingRead) {
  const TempDir dir;
  const uint64_t bytes = 100'000'000'000;
  const std::string header = braces(tensor_json("a", "U8", "[100000000000]", "[0,100000000000]"));
  const std::string head = safetensors_bytes(header);
  const auto source =
      TensorFile::open(dir.write_sparse("m.safetensors", head, head.size() + bytes));
  EXPECT_EQ(source->require("a").num_bytes, bytes);
  std::string text = "??";
  source->read_at(0, head.size() + bytes - 2, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, std::string(2, '\0'));
}

TEST(Safetensors, ManyTensorsOpenInLinearTime) {
  const TempDir dir;
  std::string header = "{";
  for (int i = 0; i < 200'000; ++i) {
    if (i > 0) header += ",";
    header += tensor_json(core::join("t", i), "F32", "[0]", "[0,0]");
  }
  const auto source = open_bytes(dir, safetensors_bytes(header + "}"));
  EXPECT_EQ(source->tensors().size(), 200'000u);
  EXPECT_NE(source->find("t199999"), nullptr);
}

}  // namespace
}  // namespace weft::io
