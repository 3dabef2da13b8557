#include "weft/io/tensor_cache.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/core/temp_dir.h"
#include "tests/io/open_error.h"

namespace weft::io {
namespace {

using testing::open_error;
using testing::replaced;
using testing::TempDir;
using testing::tensor_text;

std::string tensor_entry(const std::string& name, const std::string& dtype,
                         const std::string& shape, const std::string& place,
                         const std::string& format = "raw") {
  return core::join(R"({"name":")", name, R"(","shape":)", shape, R"(,"dtype":")", dtype,
                    R"(","format":")", format, R"(",)", place, "}");
}

std::string place(const std::string& offset, const std::string& size) {
  return core::join(R"("byteOffset":)", offset, R"(,"nbytes":)", size);
}

std::string file_record(const std::string& name, const std::string& size,
                        const std::string& tensors) {
  return core::join(R"({"dataPath":")", name, R"(","format":"raw-shard","nbytes":)", size,
                    R"(,"md5sum":"0","records":[)", tensors, "]}");
}

std::string cache(const std::string& records) {
  return core::join(R"({"metadata":{"ParamSize":2},"records":[)", records, "]}");
}

const std::string kFirst = tensor_entry("a", "uint32", "[2,1]", place("0", "8"));

// A folder with the files 0.bin of 12 bytes and 1.bin of 4.
class TensorCache : public ::testing::Test {
 protected:
  TensorCache() {
    dir_.write("0.bin", "AAAAaaaaBBBB");
    dir_.write("1.bin", "CCCC");
  }
  std::string error(const std::string& json) {
    return replaced(open_error(dir_.write("tensor-cache.json", json)), dir_.path(), "DIR");
  }
  // The error of a cache of 0.bin with `kFirst` and another tensor behind it.
  std::string tensor_error(const std::string& second) {
    return error(cache(file_record("0.bin", "12", kFirst + "," + second)));
  }

  TempDir dir_;
};

TEST_F(TensorCache, OpensAllFilesFromTheListOrItsFolderUnderBothNames) {
  const std::string json = cache(
      file_record(
          "0.bin", "12",
          kFirst + "," + tensor_entry("b", "float32", "[2]", place("8", "4"), "f32-to-bf16")) +
      "," + file_record("1.bin", "4", tensor_entry("c", "float16", "[1,2]", place("0", "4"))));
  for (const char* name : {"ndarray-cache.json", "tensor-cache.json"}) {
    const std::string path = dir_.write(name, json);
    for (const std::string& open : {path, dir_.path()}) {
      const auto source = TensorFile::open(open);
      ASSERT_EQ(source->tensors().size(), 3u);
      EXPECT_EQ(source->path(), open);
      EXPECT_EQ(tensor_text(*source, "a"), "AAAAaaaa");
      EXPECT_EQ(tensor_text(*source, "b"), "BBBB");
      EXPECT_EQ(tensor_text(*source, "c"), "CCCC");
      EXPECT_EQ(source->require("a").dtype, Dtype::kU32);
      EXPECT_EQ(source->require("a").shape, (std::vector<int64_t>{2, 1}));
      EXPECT_EQ(source->require("b").dtype, Dtype::kBF16);
      EXPECT_EQ(source->require("c").file, 1u);
      EXPECT_FALSE(source->is_gguf());
    }
  }
}

TEST_F(TensorCache, RefusesTensorsThatDoNotFitTheirFile) {
  const std::string again = "; fetch or convert the model again";
  const std::string b = "FormatError: FILE: file '0.bin': tensor 'b'";
  EXPECT_EQ(
      tensor_error(tensor_entry("b", "uint8", "[5]", place("8", "5"))),
      "FormatError: FILE: file '0.bin': tensor 'b' at byte 8: truncated: need 5 bytes, have 4" +
          again);
  EXPECT_EQ(tensor_error(tensor_entry("b", "uint8", "[3]", place("8", "3"))),
            "FormatError: FILE: file '0.bin': 1 bytes after the last tensor's end at byte 11, "
            "expected none" +
                again);
  EXPECT_EQ(tensor_error(tensor_entry("b", "uint8", "[4]", place("7", "4"))),
            b + ": byteOffset 7 overlaps, expected 8" + again);
  EXPECT_EQ(tensor_error(tensor_entry("b", "uint8", "[3]", place("9", "3"))),
            b + ": byteOffset 9 leaves a hole, expected 8" + again);
  EXPECT_EQ(tensor_error(tensor_entry("b", "uint8", "[4]", place("-8", "4"))),
            b + ": byteOffset: expected a non-negative integer, got -8");
  EXPECT_EQ(tensor_error(tensor_entry("b", "uint8", "[4]", place("18446744073709551608", "4"))),
            b + ": byteOffset 18446744073709551608 leaves a hole, expected 8" + again);
  EXPECT_EQ(tensor_error(tensor_entry("b", "uint8", "[5]", place("8", "4"))),
            b + ": nbytes 4, expected 5 for U8 [5]" + again);
  EXPECT_EQ(tensor_error(tensor_entry("b", "float32", "[2]", place("8", "3"), "f32-to-bf16")),
            b + ": nbytes 3, expected 4 for BF16 [2]" + again);
  EXPECT_EQ(tensor_error(tensor_entry("b", "uint8", "[-4]", place("8", "4"))),
            b + ": shape: size -4, expected at least 0" + again);
  EXPECT_EQ(tensor_error(tensor_entry("b", "uint8", "[4294967296,4294967296]", place("8", "4"))),
            b + ": the size of U8 [4294967296, 4294967296] does not fit in 63 bits" + again);
}

TEST_F(TensorCache, RefusesTypesFormatsAndNamesThatItDoesNotKnow) {
  const std::string b = "FormatError: FILE: file '0.bin': tensor 'b'";
  EXPECT_EQ(tensor_error(tensor_entry("b", "float17", "[2]", place("8", "4"))),
            b + ": unknown type 'float17', expected one such as 'float16'");
  EXPECT_EQ(tensor_error(tensor_entry("b", "float16", "[2]", place("8", "4"), "zip")),
            b + ": format 'zip', expected 'raw' or 'f32-to-bf16'");
  EXPECT_EQ(tensor_error(tensor_entry("b", "float16", "[2]", place("8", "4"), "f32-to-bf16")),
            b + ": f32-to-bf16 of 'float16', expected 'float32'; fetch or convert the model again");
  EXPECT_EQ(tensor_error(tensor_entry("a", "uint8", "[4]", place("8", "4"))),
            "FormatError: DIR/0.bin: tensor 'a' is also in DIR/0.bin, expected it once; remove one "
            "of the files");
  EXPECT_EQ(tensor_error(tensor_entry("b\\u0000", "uint8", "[4]", place("8", "4"))),
            "FormatError: FILE: file '0.bin': tensor 'b\\x00': a NUL byte in the name; convert the "
            "file again");
}

TEST_F(TensorCache, RefusesFilesThatItMustNotOrCannotOpen) {
  const auto name_error = [&](const std::string& name) {
    return error(cache(file_record(name, "4", "")));
  };
  const std::string plain = ", expected a plain name in the index's folder; correct the index";
  EXPECT_EQ(name_error("../0.bin"),
            "FormatError: FILE: file '../0.bin': file name '../0.bin'" + plain);
  EXPECT_EQ(name_error("/etc/passwd"),
            "FormatError: FILE: file '/etc/passwd': file name '/etc/passwd'" + plain);
  EXPECT_EQ(name_error(""), "FormatError: FILE: file '': file name ''" + plain);
  EXPECT_EQ(name_error("2.bin"),
            "FormatError: FILE: file '2.bin': is missing; fetch all files of the model");
  EXPECT_EQ(
      name_error("0.bin"),
      "FormatError: FILE: file '0.bin': nbytes 4, the file has 12 bytes; fetch or convert the "
      "model again");
  const std::string c =
      file_record("1.bin", "4", tensor_entry("c", "uint8", "[4]", place("0", "4")));
  EXPECT_EQ(error(cache(c + "," + c)),
            "FormatError: FILE: file '1.bin' is listed twice, expected unique names; fetch or "
            "convert the model again");
}

TEST_F(TensorCache, RefusesABrokenList) {
  EXPECT_EQ(
      error(cache("")),
      "FormatError: FILE: records: expected files, got none; fetch or convert the model again");
  EXPECT_EQ(error(R"({"records":{}})"), "FormatError: FILE: records: expected a list, got object");
  EXPECT_EQ(error(R"({"records":[1]})"), "FormatError: FILE: expected an object, got 1");
  EXPECT_EQ(error(R"({"records":[{"dataPath":1}]})"),
            "FormatError: FILE: dataPath: expected a string, got 1");
  EXPECT_EQ(error(R"({"records":[{"dataPath":"0.bin","format":"zip"}]})"),
            "FormatError: FILE: file '0.bin': format 'zip', expected 'raw-shard'; fetch or convert "
            "the model again");
  EXPECT_EQ(error(R"({"records":[{"dataPath":"0.bin","format":"raw-shard","nbytes":12}]})"),
            "FormatError: FILE: file '0.bin': missing key \"records\"");
}

}  // namespace
}  // namespace weft::io
