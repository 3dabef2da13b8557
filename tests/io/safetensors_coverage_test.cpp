#include <gtest/gtest.h>

#include <string>

#include "tests/io/open_error.h"
#include "tests/io/safetensors_builder.h"
#include "weft/io/formats/safetensors.h"

namespace weft::io {
namespace {

using testing::braces;
using testing::expect_errors;
using testing::safetensors_bytes;
using testing::tensor_json;

std::string f32_entry(const std::string& name, int count, const std::string& offsets) {
  return tensor_json(name, "F32", core::join("[", count, "]"), offsets);
}

TEST(SafetensorsFile, RefusesWrongHeaderLengths) {
  expect_errors("m.safetensors",
                {
                    {"empty", "",
                     "header length at byte 0: truncated: need 8 bytes, have 0; "
                     "fetch or convert the file again"},
                    {"3 bytes", "abc",
                     "header length at byte 0: truncated: need 8 bytes, have 3; "
                     "fetch or convert the file again"},
                    {"7 bytes", std::string(7, '\0'),
                     "header length at byte 0: truncated: need 8 bytes, have 7; "
                     "fetch or convert the file again"},
                    {"8 bytes, n = 0", safetensors_bytes(""),
                     "header length 0, expected a JSON object; fetch or convert "
                     "the file again"},
                    {"2^63", safetensors_bytes("{}", "", uint64_t{1} << 63),
                     "header length 9223372036854775808 exceeds the format's "
                     "limit of 100000000 bytes; fetch or convert the file again"},
                    {"2^64 - 1", safetensors_bytes("{}", "", UINT64_MAX),
                     "header length 18446744073709551615 exceeds the format's "
                     "limit of 100000000 bytes; fetch or convert the file again"},
                    {"100,000,001", safetensors_bytes("{}", "", 100'000'001),
                     "header length 100000001 exceeds the format's limit of "
                     "100000000 bytes; fetch or convert the file again"},
                    {"100,000,000 of 2", safetensors_bytes("{}", "", 100'000'000),
                     "header length 100000000 exceeds the 2 bytes that follow: "
                     "truncated: need 100000000 bytes, have 2; fetch or convert the file again"},
                    {"more than the file", safetensors_bytes("{}", "", 1000),
                     "header length 1000 exceeds the 2 bytes that follow: "
                     "truncated: need 1000 bytes, have 2; fetch or convert the file again"},
                });
}

TEST(SafetensorsFile, RefusesAnythingButExactCoverage) {
  const std::string a = f32_entry("a", 1, "[0,4]");
  expect_errors(
      "m.safetensors",
      {
          {"no tensor but data", safetensors_bytes("{}", "0123"),
           "4 bytes after the last tensor's end at byte 10, expected none; "
           "convert the file again"},
          {"truncated", safetensors_bytes(braces(f32_entry("a", 2, "[0,8]")), "0123456"),
           "tensor 'a' at byte 62: truncated: need 8 bytes, have 7; fetch or "
           "convert the file again"},
          {"trailing", safetensors_bytes(braces(f32_entry("a", 2, "[0,8]")), "012345678"),
           "1 bytes after the last tensor's end at byte 70, expected none; "
           "convert the file again"},
          {"hole", safetensors_bytes(braces(a + "," + f32_entry("b", 1, "[8,12]")), "0123456789ab"),
           "tensor 'b': data begins at 8, hole after tensor 'a', expected 4; "
           "convert the file again"},
          {"hole at start", safetensors_bytes(braces(f32_entry("a", 1, "[4,8]")), "01234567"),
           "tensor 'a': data begins at 4, hole, expected 0; convert the file "
           "again"},
          {"exact overlap", safetensors_bytes(braces(a + "," + f32_entry("b", 1, "[0,4]")), "0123"),
           "tensor 'b': data begins at 0, overlap after tensor 'a', expected 4; "
           "convert the file again"},
          {"partial overlap",
           safetensors_bytes(braces(f32_entry("a", 2, "[0,8]") + "," + f32_entry("b", 2, "[4,12]")),
                             "0123456789ab"),
           "tensor 'b': data begins at 4, overlap after tensor 'a', expected 8; "
           "convert the file again"},
          {"zero size elsewhere",
           safetensors_bytes(braces(a + "," + f32_entry("z", 0, "[2,2]")), "0123"),
           "tensor 'z': data begins at 2, overlap after tensor 'a', expected 4; "
           "convert the file again"},
          {"past the end",
           safetensors_bytes(braces(a + "," + f32_entry("b", 1 << 20, "[4,4194308]")), "01234567"),
           "tensor 'b' at byte 131: truncated: need 4194304 bytes, have 4; "
           "fetch or convert the file again"},
          {"begin near 2^64",
           safetensors_bytes(
               braces(f32_entry("a", 1, "[18446744073709551611,18446744073709551615]")), "0123"),
           "tensor 'a': data begins at 18446744073709551611, hole, expected 0; "
           "convert the file again"},
          {"newline in the name",
           safetensors_bytes(braces(f32_entry("a\\nb\\u001b", 1, "[4,8]")), "01234567"),
           "tensor 'a\\x0ab\\x1b': data begins at 4, hole, expected 0; convert "
           "the file again"},
      });
}

TEST(SafetensorsFile, EveryTruncationIsRefused) {
  const testing::TempDir dir;
  const std::string whole = safetensors_bytes(
      braces(f32_entry("a", 100, "[0,400]") + "," + f32_entry("b", 100, "[400,800]")),
      std::string(800, 'x'));
  for (size_t i = 0; i < 64; ++i) {
    const std::string text =
        testing::bytes_error(dir, "m.safetensors", whole.substr(0, whole.size() * i / 64));
    EXPECT_NE(text.find("truncated: need "), std::string::npos) << i << ": " << text;
    EXPECT_TRUE(text.starts_with("FormatError: FILE: ")) << text;
  }
}

TEST(SafetensorsFile, AHeaderOf100MillionSpacesIsRefused) {
  const testing::TempDir dir;
  const std::string path =
      dir.write("m.safetensors", safetensors_bytes(std::string(100'000'000, ' ')));
  EXPECT_EQ(
      testing::open_error(path),
      "FormatError: FILE: header at byte 100000008: not valid JSON: syntax error while parsing "
      "value - unexpected end of input; expected '[', '{', or a literal; fetch or convert the "
      "file again");
}

}  // namespace
}  // namespace weft::io
