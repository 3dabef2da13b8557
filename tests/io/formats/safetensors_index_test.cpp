#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/core/temp_dir.h"
#include "tests/io/open_error.h"
#include "tests/io/safetensors_builder.h"
#include "weft/io/sources.h"

namespace weft::io {
namespace {

using testing::braces;
using testing::open_error;
using testing::replaced;
using testing::safetensors_bytes;
using testing::TempDir;
using testing::tensor_json;
using testing::tensor_text;

constexpr const char* kIndex = "model.safetensors.index.json";

// A file with one tensor of four bytes.
std::string one_tensor(const std::string& name, const std::string& bytes) {
  return safetensors_bytes(braces("\"__metadata__\":{\"from\":\"" + name + "\"}," +
                                  tensor_json(name, "U8", "[4]", "[0,4]")),
                           bytes);
}

// A folder with the tensors a, b in two files and an index with this weight_map.
class Index : public ::testing::Test {
 protected:
  Index() {
    dir_.write("1.safetensors", one_tensor("a", "AAAA"));
    dir_.write("2.safetensors", one_tensor("b", "BBBB"));
  }
  std::string error(const std::string& weight_map) {
    return json_error(core::join(R"({"weight_map":)", weight_map, "}"));
  }
  std::string json_error(const std::string& json) {
    const std::string path = dir_.write(kIndex, json);
    return replaced(open_error(path), dir_.path(), "DIR");
  }

  TempDir dir_;
};

constexpr const char* kGood = R"({"a":"1.safetensors","b":"2.safetensors"})";

TEST_F(Index, OpensAllFilesFromTheIndexOrItsFolder) {
  const std::string path = dir_.write(
      kIndex, core::join(R"({"metadata":{"total_size":8,"x":[]},"weight_map":)", kGood, "}"));
  for (const std::string& open : {path, dir_.path()}) {
    ::testing::internal::CaptureStderr();
    const auto source = TensorFile::open(open);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(source->path(), open);
    ASSERT_EQ(source->tensors().size(), 2u);
    EXPECT_EQ(source->require("a").file, 0u);
    EXPECT_EQ(source->require("b").file, 1u);
    EXPECT_EQ(tensor_text(*source, "a"), "AAAA");
    EXPECT_EQ(tensor_text(*source, "b"), "BBBB");
    EXPECT_EQ(std::get<std::string>(source->metadata().at("from")), "a");
  }
}

TEST_F(Index, AWrongTotalSizeIsOnlyLogged) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(json_error(core::join(R"({"metadata":{"total_size":9},"weight_map":)", kGood, "}")),
            "no error");
  EXPECT_EQ(replaced(::testing::internal::GetCapturedStderr(), dir_.path(), "DIR"),
            "weft: warn: DIR/model.safetensors.index.json: total_size is 9, the tensors have 8 "
            "bytes\n");
  std::string list = "[9";
  for (int i = 0; i < 1000; ++i) list += ",9";
  ::testing::internal::CaptureStderr();
  json_error(core::join(R"({"metadata":{"total_size":)", list, R"(]},"weight_map":)", kGood, "}"));
  EXPECT_LT(::testing::internal::GetCapturedStderr().size(), 300U + dir_.path().size());
}

TEST_F(Index, RefusesToLeaveItsFolder) {
  std::filesystem::create_directory(dir_.at("sub"));
  const auto error_of = [&](const std::string& name) {
    return error(core::join(R"({"a":")", name, R"("})"));
  };
  const auto expected = [](const std::string& shown) {
    return core::join("FormatError: FILE: tensor 'a': file name ", shown,
                      ", expected a plain name in the index's folder; correct the index");
  };
  EXPECT_EQ(error_of("../../etc/passwd"), expected("'../../etc/passwd'"));
  EXPECT_EQ(error_of("/etc/passwd"), expected("'/etc/passwd'"));
  EXPECT_EQ(error_of("sub/1.safetensors"), expected("'sub/1.safetensors'"));
  EXPECT_EQ(error_of("..\\\\x"), expected("'..\\x'"));
  EXPECT_EQ(error_of(".."), expected("'..'"));
  EXPECT_EQ(error_of("."), expected("'.'"));
  EXPECT_EQ(error_of(""), expected("''"));
  EXPECT_EQ(error_of("1.safetensors\\u0000"), expected("'1.safetensors\\x00'"));
}

TEST_F(Index, RefusesWhatDoesNotMatchTheFiles) {
  EXPECT_EQ(error(R"({"a":"1.safetensors","b":"3.safetensors"})"),
            "FormatError: FILE: file '3.safetensors' is missing; fetch all files of the model");
  EXPECT_EQ(error(R"({"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"})"),
            "FormatError: FILE: tensor 'c' is not in 2.safetensors, where the index has it; fetch "
            "the file again or correct the index");
  dir_.write("3.safetensors", one_tensor("c", "CCCC"));
  EXPECT_EQ(error(R"({"a":"1.safetensors","b":"3.safetensors"})"),
            "FormatError: FILE: tensor 'c' is in 3.safetensors but not in the index; correct the "
            "index");
  EXPECT_EQ(error(R"({"a":"2.safetensors","b":"1.safetensors"})"),
            "FormatError: FILE: tensor 'a' is in 1.safetensors, expected in 2.safetensors; correct "
            "the index");
  dir_.write("2.safetensors", one_tensor("a", "BBBB"));
  EXPECT_EQ(error(kGood),
            "FormatError: DIR/2.safetensors: tensor 'a' is also in DIR/1.safetensors, expected it "
            "once; remove one of the files");
  dir_.write("2.safetensors", "GGUF\3" + std::string(27, '\0'));
  EXPECT_EQ(
      error(kGood),
      "FormatError: DIR/2.safetensors: GGUF among files of the other format; keep one format in "
      "a model");
}

TEST_F(Index, RefusesABrokenIndex) {
  EXPECT_EQ(error("{}"), "FormatError: FILE: weight_map is empty, expected tensors; correct it");
  EXPECT_EQ(error("[]"), "FormatError: FILE: weight_map: expected an object, got array");
  EXPECT_EQ(error(R"({"a":1})"), "FormatError: FILE: tensor 'a': expected a string, got 1");
  EXPECT_EQ(error(R"({"a":null})"), "FormatError: FILE: tensor 'a': expected a string, got null");
  EXPECT_EQ(error(R"({"a":"1.safetensors","a":"1.safetensors"})"),
            "FormatError: FILE: duplicate JSON key 'a'; each key may stand once");
  EXPECT_EQ(json_error("{}"), "FormatError: FILE: missing key \"weight_map\"");
  EXPECT_EQ(json_error("[]"), "FormatError: FILE: expected an object, got array");
  EXPECT_EQ(json_error(""),
            "FormatError: FILE: not valid JSON at byte 0: syntax error while parsing value - "
            "unexpected end of input; expected '[', '{', or a literal");
  EXPECT_EQ(open_error(dir_.at("none.json")), "FormatError: FILE: no such file; check the path");
}

}  // namespace
}  // namespace weft::io
