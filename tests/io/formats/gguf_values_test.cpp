#include "weft/io/formats/gguf_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/core/temp_dir.h"
#include "tests/io/gguf_builder.h"
#include "tests/io/open_error.h"
#include "weft/io/tensor_file.h"

namespace weft::io {
namespace {

using testing::expect_errors;
using testing::gguf_array;
using testing::gguf_key;
using testing::gguf_text;
using testing::GgufBuilder;
using testing::raw;
using testing::TempDir;

std::string file_with(GgufType type, const std::string& value) {
  GgufBuilder builder;
  builder.keys = {gguf_key("k", type, value)};
  return builder.build();
}

MetaValue read(GgufType type, const std::string& value) {
  const TempDir dir;
  return TensorFile::open(dir.write("m.gguf", file_with(type, value)))->metadata().at("k");
}

MetaValue read_array(GgufType type, uint64_t count, const std::string& items) {
  return read(GgufType::kArray, gguf_array(type, count, items));
}

TEST(GgufValues, IntegersBecome64BitsOfTheirSign) {
  EXPECT_EQ(std::get<uint64_t>(read(GgufType::kU8, raw<uint8_t>(200))), 200u);
  EXPECT_EQ(std::get<int64_t>(read(GgufType::kI8, raw<int8_t>(-100))), -100);
  EXPECT_EQ(std::get<uint64_t>(read(GgufType::kU16, raw<uint16_t>(65'535))), 65'535u);
  EXPECT_EQ(std::get<int64_t>(read(GgufType::kI16, raw<int16_t>(-32'768))), -32'768);
  EXPECT_EQ(std::get<uint64_t>(read(GgufType::kU32, raw(UINT32_MAX))), UINT32_MAX);
  EXPECT_EQ(std::get<int64_t>(read(GgufType::kI32, raw(INT32_MIN))), INT32_MIN);
  EXPECT_EQ(std::get<uint64_t>(read(GgufType::kU64, raw(UINT64_MAX))), UINT64_MAX);
  EXPECT_EQ(std::get<int64_t>(read(GgufType::kI64, raw(INT64_MIN))), INT64_MIN);
}

TEST(GgufValues, FloatsBoolsAndStringsKeepTheirValue) {
  EXPECT_EQ(std::get<double>(read(GgufType::kF32, raw(1.5F))), 1.5);
  EXPECT_EQ(std::get<double>(read(GgufType::kF64, raw(0.1))), 0.1);
  EXPECT_TRUE(std::isnan(
      std::get<double>(read(GgufType::kF32, raw(std::numeric_limits<float>::quiet_NaN())))));
  EXPECT_TRUE(std::get<bool>(read(GgufType::kBool, raw<uint8_t>(1))));
  EXPECT_FALSE(std::get<bool>(read(GgufType::kBool, raw<uint8_t>(0))));
  EXPECT_EQ(std::get<std::string>(read(GgufType::kString, gguf_text(""))), "");
  const std::string bytes("a\0\xff", 3);
  EXPECT_EQ(std::get<std::string>(read(GgufType::kString, gguf_text(bytes))), bytes);
}

TEST(GgufValues, ArraysHoldOneType) {
  EXPECT_EQ(std::get<std::vector<uint64_t>>(read_array(GgufType::kU8, 2, "\x01\xff")),
            (std::vector<uint64_t>{1, 255}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(read_array(GgufType::kI8, 2, "\x01\xff")),
            (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(std::get<std::vector<uint64_t>>(read_array(GgufType::kU16, 1, raw<uint16_t>(7))),
            (std::vector<uint64_t>{7}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(read_array(GgufType::kI16, 1, raw<int16_t>(-7))),
            (std::vector<int64_t>{-7}));
  EXPECT_EQ(std::get<std::vector<uint64_t>>(read_array(GgufType::kU32, 1, raw(UINT32_MAX))),
            (std::vector<uint64_t>{UINT32_MAX}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(read_array(GgufType::kI32, 1, raw(-1))),
            (std::vector<int64_t>{-1}));
  EXPECT_EQ(std::get<std::vector<uint64_t>>(read_array(GgufType::kU64, 1, raw(UINT64_MAX))),
            (std::vector<uint64_t>{UINT64_MAX}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(read_array(GgufType::kI64, 0, "")),
            (std::vector<int64_t>{}));
  EXPECT_EQ(std::get<std::vector<double>>(read_array(GgufType::kF32, 2, raw(0.5F) + raw(-2.0F))),
            (std::vector<double>{0.5, -2.0}));
  EXPECT_EQ(std::get<std::vector<double>>(read_array(GgufType::kF64, 1, raw(0.1))),
            (std::vector<double>{0.1}));
  EXPECT_EQ(std::get<std::vector<bool>>(read_array(GgufType::kBool, 2, std::string("\1\0", 2))),
            (std::vector<bool>{true, false}));
  EXPECT_EQ(std::get<std::vector<std::string>>(
                read_array(GgufType::kString, 2, gguf_text("a") + gguf_text(""))),
            (std::vector<std::string>{"a", ""}));
}

TEST(GgufValues, LongArraysOfAnyLengthAreWhole) {
  std::string items;
  std::vector<uint64_t> expected;
  std::string texts;
  for (uint32_t i = 0; i < 300'001; ++i) {
    items += raw(i);
    expected.push_back(i);
    texts += gguf_text(std::to_string(i));
  }
  EXPECT_EQ(std::get<std::vector<uint64_t>>(read_array(GgufType::kU32, 300'001, items)), expected);
  const auto strings =
      std::get<std::vector<std::string>>(read_array(GgufType::kString, 300'001, texts));
  ASSERT_EQ(strings.size(), 300'001u);
  EXPECT_EQ(strings[300'000], "300000");
  EXPECT_EQ(strings[12'345], "12345");
}

TEST(GgufValues, RefusesWrongValues) {
  const auto array = [](GgufType type, uint64_t count, const std::string& items) {
    return file_with(GgufType::kArray, gguf_array(type, count, items));
  };
  const auto text_of = [](uint64_t length) { return raw(length) + std::string(40, 't'); };
  expect_errors(
      "m.gguf",
      {
          {"type 13", file_with(static_cast<GgufType>(13), std::string(8, '\0')),
           "key 'k' at byte 37: value of type 13, expected a number, bool or "
           "string type from 0 to 12; fetch or convert the file again"},
          {"type 2^32 - 1", file_with(static_cast<GgufType>(UINT32_MAX), std::string(8, '\0')),
           "key 'k' at byte 37: value of type 4294967295, expected a number, "
           "bool or string type from 0 to 12; fetch or convert the file again"},
          {"bool 2", file_with(GgufType::kBool, "\2"),
           "key 'k' at byte 38: bool of value 2, expected 0 or 1; fetch or "
           "convert the file again"},
          {"bool in array", array(GgufType::kBool, 2, "\1\3"),
           "key 'k' at byte 51: bool of value 3, expected 0 or 1; fetch or "
           "convert the file again"},
          {"string 2^64 - 1", file_with(GgufType::kString, text_of(UINT64_MAX)),
           "key 'k' at byte 45: string of 18446744073709551615 bytes, expected "
           "at most 16777216; fetch or convert the file again"},
          {"string of 16 MiB and 1", file_with(GgufType::kString, text_of((16 << 20) + 1)),
           "key 'k' at byte 45: string of 16777217 bytes, expected at most "
           "16777216; fetch or convert the file again"},
          {"string past the end", file_with(GgufType::kString, text_of(1'000'000)),
           "key 'k' at byte 45: truncated: need 1000000 bytes, have 51; fetch "
           "or convert the file again"},
          {"array of arrays", array(GgufType::kArray, 1, gguf_array(GgufType::kU8, 1, "1")),
           "key 'k' at byte 49: array of arrays, expected numbers, bools or "
           "strings; convert the model again"},
          {"array of type 13", array(static_cast<GgufType>(13), 1, std::string(8, '\0')),
           "key 'k' at byte 49: array of type 13, expected a number, bool or "
           "string type from 0 to 12; fetch or convert the file again"},
          {"array of 2^64 - 1", array(GgufType::kU8, UINT64_MAX, ""),
           "key 'k' at byte 49: array of 18446744073709551615 items, expected "
           "at most 16777216; fetch or convert the file again"},
          {"array of 2^63", array(GgufType::kU32, uint64_t{1} << 63, ""),
           "key 'k' at byte 49: array of 9223372036854775808 items, expected at "
           "most 16777216; fetch or convert the file again"},
          {"array whose bytes wrap", array(GgufType::kU64, uint64_t{1} << 61, ""),
           "key 'k' at byte 49: array of 2305843009213693952 items, expected at "
           "most 16777216; fetch or convert the file again"},
          {"array past the end", array(GgufType::kU64, 1 << 24, ""),
           "key 'k' at byte 49: truncated: need 134217728 bytes, have 15; fetch "
           "or convert the file again"},
          {"strings past the end", array(GgufType::kString, 1 << 24, ""),
           "key 'k' at byte 49: truncated: need 134217728 bytes, have 15; fetch "
           "or convert the file again"},
          {"bools past the end", array(GgufType::kBool, 1 << 24, ""),
           "key 'k' at byte 49: truncated: need 16777216 bytes, have 15; fetch "
           "or convert the file again"},
          {"string in array past the end",
           array(GgufType::kString, 2, gguf_text("a") + text_of(1000)),
           "key 'k' at byte 66: truncated: need 1000 bytes, have 62; fetch or "
           "convert the file again"},
      });
}

}  // namespace
}  // namespace weft::io
