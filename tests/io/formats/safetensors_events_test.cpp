#include "weft/io/formats/safetensors_events.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/io/open_error.h"
#include "tests/io/safetensors_builder.h"

namespace weft::io {
namespace {

using testing::braces;
using testing::expect_errors;
using testing::safetensors_bytes;
using testing::tensor_json;

// A header with one tensor "a" of F32 [1], with `field` replaced by `value`.
std::string with(const std::string& field, const std::string& value) {
  const auto pick = [&](const std::string& name, const std::string& usual) {
    return core::join("\"", name, "\":", name == field ? value : usual);
  };
  return safetensors_bytes(
      core::join("{\"a\":{", pick("dtype", "\"F32\""), ",", pick("shape", "[1]"), ",",
                 pick("data_offsets", "[0,4]"), "}}"),
      std::string(4, '\0'));
}

// "[1,1,…]"
std::string ones(int count) {
  std::string text = "[1";
  for (int i = 1; i < count; ++i) text += ",1";
  return text + "]";
}

std::string nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(SafetensorsHeader, RefusesWhatIsNotJson) {
  expect_errors(
      "m.safetensors",
      {
          {"not JSON", safetensors_bytes("x{}"),
           "header at byte 8: not valid JSON: syntax error while parsing value "
           "- invalid literal; last read: 'x'; fetch or convert the file again"},
          {"spaces only", safetensors_bytes("        "),
           "header at byte 16: not valid JSON: syntax error while parsing value "
           "- unexpected end of input; expected '[', '{', or a literal; fetch or convert the file "
           "again"},
          {"two values", safetensors_bytes("{}{}"),
           "header at byte 10: not valid JSON: syntax error while parsing value "
           "- unexpected '{'; expected end of input; fetch or convert the file again"},
          {"junk after", safetensors_bytes("{} x"),
           "header at byte 11: not valid JSON: syntax error while parsing value "
           "- invalid literal; last read: '{} x'; expected end of input; fetch or convert the file "
           "again"},
          {"trailing NULs", safetensors_bytes(std::string("{}\0\0", 4)),
           "header: not valid JSON at byte 2: a NUL byte"},
          {"byte order mark", safetensors_bytes("\xEF\xBB\xBF{}"),
           "header: not valid JSON at byte 0: a byte order mark; save the file "
           "without it"},
          {"not UTF-8", safetensors_bytes("{\"\xff\":1}"),
           "header at byte 10: not valid JSON: syntax error while parsing "
           "object key - invalid string: ill-formed UTF-8 byte; last read: '\"?'; expected string "
           "literal; fetch or convert the file again"},
          {"lone surrogate", safetensors_bytes("{\"\\ud800\":1}"),
           "header at byte 16: not valid JSON: syntax error while parsing "
           "object key - invalid string: surrogate U+D800..U+DBFF must be followed by "
           "U+DC00..U+DFFF; last read: '\"\\ud800\"'; expected string literal; fetch or convert "
           "the file again"},
          {"cut", safetensors_bytes("{\"a\":"),
           "header at byte 13: not valid JSON: syntax error while parsing value "
           "- unexpected end of input; expected '[', '{', or a literal; fetch or convert the file "
           "again"},
          {"NaN", safetensors_bytes("{\"a\":NaN}"),
           "header at byte 13: not valid JSON: syntax error while parsing value "
           "- invalid literal; last read: '\"a\":N'; fetch or convert the file again"},
          {"1e400", with("shape", "[1e400]"),
           "header at byte 41: not valid JSON: number overflow parsing '1e400'; "
           "fetch or convert the file again"},
      });
}

TEST(SafetensorsHeader, RefusesWrongStructure) {
  expect_errors(
      "m.safetensors",
      {{"array", safetensors_bytes("[]"),
        "header at byte 9: expected a JSON object, got a list; convert the "
        "file again"},
       {"null", safetensors_bytes("null"),
        "header at byte 12: expected a JSON object, got null; convert the "
        "file again"},
       {"number", safetensors_bytes("1"),
        "header at byte 9: expected a JSON object, got 1; convert the file "
        "again"},
       {"tensor is a number", safetensors_bytes("{\"a\":1}"),
        "tensor 'a' at byte 15: expected an object, got 1; convert the file "
        "again"},
       {"tensor is a list", safetensors_bytes("{\"a\":[]}"),
        "tensor 'a' at byte 14: expected an object, got a list; convert the "
        "file again"},
       {"tensor is null", safetensors_bytes("{\"a\":null}"),
        "tensor 'a' at byte 17: expected an object, got null; convert the "
        "file again"},
       {"no shape", safetensors_bytes(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "0123"),
        "tensor 'a' at byte 49: missing field 'shape'; convert the file "
        "again"},
       {"no dtype", safetensors_bytes(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "0123"),
        "tensor 'a' at byte 47: missing field 'dtype'; convert the file "
        "again"},
       {"no offsets", safetensors_bytes(R"({"a":{"dtype":"F32","shape":[1]}})", "0123"),
        "tensor 'a' at byte 40: missing field 'data_offsets'; convert the "
        "file again"},
       {"empty tensor", safetensors_bytes(R"({"a":{}})"),
        "tensor 'a' at byte 15: missing field 'dtype'; convert the file "
        "again"}});
}

TEST(SafetensorsHeader, RefusesWrongMetadataNestingAndNames) {
  expect_errors(
      "m.safetensors",
      {
          {"metadata list", safetensors_bytes(R"({"__metadata__":[]})"),
           "header at byte 25: __metadata__: expected an object of strings, got "
           "a list; convert the file again"},
          {"metadata number", safetensors_bytes(R"({"__metadata__":{"x":1}})"),
           "__metadata__ at byte 31: expected a string, got 1; convert the file "
           "again"},
          {"metadata object", safetensors_bytes(R"({"__metadata__":{"x":{"y":"z"}}})"),
           "__metadata__ at byte 30: expected a string, got an object; convert "
           "the file again"},
          {"metadata null value", safetensors_bytes(R"({"__metadata__":{"x":null}})"),
           "__metadata__ at byte 33: expected a string, got null; convert the "
           "file again"},
          {"nested 64", safetensors_bytes(core::join("{\"a\":{\"x\":", nested(65), "}}")),
           "tensor 'a' at byte 83: JSON nested deeper than 64 levels; convert "
           "the file again"},
          {"nested 100k", safetensors_bytes(core::join("{\"a\":{\"x\":", nested(100'000), "}}")),
           "tensor 'a' at byte 83: JSON nested deeper than 64 levels; convert "
           "the file again"},
          {"nested tensor", safetensors_bytes(core::join("{\"a\":", nested(100'000), "}")),
           "tensor 'a' at byte 14: expected an object, got a list; convert the "
           "file again"},
          {"NUL name",
           safetensors_bytes(braces(tensor_json("a\\u0000b", "F32", "[1]", "[0,4]")), "0123"),
           "tensor 'a\\x00b': a NUL byte in the name; convert the file again"},
      });
}

TEST(SafetensorsHeader, RefusesDuplicates) {
  const std::string a = tensor_json("a", "F32", "[1]", "[0,4]");
  expect_errors(
      "m.safetensors",
      {
          {"tensor", safetensors_bytes(braces(a + "," + a), "0123"),
           "tensor 'a' is listed twice, expected unique names; convert the file "
           "again"},
          {"tensor, other place",
           safetensors_bytes(braces(a + "," + tensor_json("a", "F32", "[1]", "[4,8]")), "01234567"),
           "tensor 'a' is listed twice, expected unique names; convert the file "
           "again"},
          {"metadata", safetensors_bytes(R"({"__metadata__":{"x":"1"},"__metadata__":{"x":"2"}})"),
           "header at byte 48: __metadata__ stands twice, expected once; "
           "convert the file again"},
          {"metadata null", safetensors_bytes(R"({"__metadata__":null,"__metadata__":{}})"),
           "header at byte 43: __metadata__ stands twice, expected once; "
           "convert the file again"},
          {"metadata key", safetensors_bytes(R"({"__metadata__":{"x":"1","x":"2"}})"),
           "__metadata__ at byte 40: key 'x' stands twice, expected once; "
           "convert the file again"},
          {"field",
           safetensors_bytes(
               R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "0123"),
           "tensor 'a' at byte 35: field 'dtype' stands twice, expected once; "
           "convert the file again"},
          {"unknown field",
           safetensors_bytes(
               R"({"a":{"x":1,"x":2,"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "0123"),
           "tensor 'a' at byte 23: field 'x' stands twice, expected once; "
           "convert the file again"},
      });
}

TEST(SafetensorsHeader, RefusesWrongShapes) {
  expect_errors("m.safetensors",
                {{"negative dim", with("shape", "[-1]"),
                  "tensor 'a' at byte 40: shape: expected a list of integers >= 0, got "
                  "-1; convert the file again"},
                 {"float dim", with("shape", "[1.0]"),
                  "tensor 'a' at byte 41: shape: expected a list of integers >= 0, got "
                  "'1.0'; convert the file again"},
                 {"exponent dim", with("shape", "[1e0]"),
                  "tensor 'a' at byte 41: shape: expected a list of integers >= 0, got "
                  "'1e0'; convert the file again"},
                 {"2^53+1 as float", with("shape", "[9007199254740993.0]"),
                  "tensor 'a' at byte 56: shape: expected a list of integers >= 0, got "
                  "'9007199254740993.0'; convert the file again"},
                 {"string dim", with("shape", "[\"1\"]"),
                  "tensor 'a' at byte 40: shape: expected a list of integers >= 0, got "
                  "the string '1'; convert the file again"},
                 {"bool dim", with("shape", "[true]"),
                  "tensor 'a' at byte 41: shape: expected a list of integers >= 0, got "
                  "true; convert the file again"},
                 {"null dim", with("shape", "[null]"),
                  "tensor 'a' at byte 41: shape: expected a list of integers >= 0, got "
                  "null; convert the file again"},
                 {"list dim", with("shape", "[[1]]"),
                  "tensor 'a' at byte 38: shape: expected a list of integers >= 0, got "
                  "a list; convert the file again"},
                 {"shape is a number", with("shape", "1"),
                  "tensor 'a' at byte 38: shape: expected a list of integers >= 0, got "
                  "1; convert the file again"},
                 {"shape is null", with("shape", "null"),
                  "tensor 'a' at byte 40: shape: expected a list of integers >= 0, got "
                  "null; convert the file again"},
                 {"shape is an object", with("shape", "{}"),
                  "tensor 'a' at byte 37: shape: expected a list of integers >= 0, got "
                  "an object; convert the file again"}});
}

TEST(SafetensorsHeader, RefusesTooLargeShapes) {
  expect_errors("m.safetensors",
                {{"dim 2^63", with("shape", "[9223372036854775808]"),
                  "tensor 'a' at byte 57: shape: 9223372036854775808 does not fit in "
                  "63 bits; convert the file again"},
                 {"dim 2^64", with("shape", "[18446744073709551616]"),
                  "tensor 'a' at byte 58: shape: expected a list of integers >= 0, got "
                  "'18446744073709551616'; convert the file again"},
                 {"2^53+1", with("shape", "[9007199254740993]"),
                  "tensor 'a' at byte 76: data_offsets [0, 4] are 4 bytes, expected "
                  "36028797018963972 for F32 [9007199254740993]; convert the file again"},
                 {"65 dims", with("shape", ones(65)),
                  "tensor 'a' at byte 167: shape: more than 64 dimensions; convert the "
                  "file again"},
                 {"product overflow", with("shape", "[4611686018427387904,4]"),
                  "tensor 'a' at byte 81: the size of F32 [4611686018427387904, 4] "
                  "does not fit in 63 bits; convert the file again"},
                 {"bytes overflow", with("shape", "[2,4611686018427387903]"),
                  "tensor 'a' at byte 81: the size of F32 [2, 4611686018427387903] "
                  "does not fit in 63 bits; convert the file again"},
                 {"overflow hidden by 0", with("shape", "[4611686018427387904,4,0]"),
                  "tensor 'a' at byte 83: the size of F32 [4611686018427387904, 4, 0] "
                  "does not fit in 63 bits; convert the file again"}});
}

TEST(SafetensorsHeader, RefusesWrongOffsets) {
  expect_errors("m.safetensors",
                {{"negative offset", with("data_offsets", "[-4,0]"),
                  "tensor 'a' at byte 59: data_offsets: expected two integers >= 0, "
                  "got -4; convert the file again"},
                 {"float offset", with("data_offsets", "[0,4.0]"),
                  "tensor 'a' at byte 62: data_offsets: expected two integers >= 0, "
                  "got '4.0'; convert the file again"},
                 {"one offset", with("data_offsets", "[0]"),
                  "tensor 'a' at byte 58: data_offsets: expected two integers >= 0, "
                  "got 1; convert the file again"},
                 {"three offsets", with("data_offsets", "[0,4,8]"),
                  "tensor 'a' at byte 62: data_offsets: expected two integers >= 0, "
                  "got more; convert the file again"},
                 {"no offset", with("data_offsets", "[]"),
                  "tensor 'a' at byte 57: data_offsets: expected two integers >= 0, "
                  "got 0; convert the file again"},
                 {"offset 2^64", with("data_offsets", "[0,18446744073709551616]"),
                  "tensor 'a' at byte 79: data_offsets: expected two integers >= 0, "
                  "got '18446744073709551616'; convert the file again"},
                 {"offsets object", with("data_offsets", "{\"0\":0}"),
                  "tensor 'a' at byte 56: data_offsets: expected two integers >= 0, "
                  "got an object; convert the file again"},
                 {"end before begin", with("data_offsets", "[4,0]"),
                  "tensor 'a' at byte 61: data_offsets [4, 0] end before they begin; "
                  "convert the file again"},
                 {"size differs", with("data_offsets", "[0,8]"),
                  "tensor 'a' at byte 61: data_offsets [0, 8] are 8 bytes, expected 4 "
                  "for F32 [1]; convert the file again"}});
}

TEST(SafetensorsHeader, RefusesWrongTypes) {
  expect_errors(
      "m.safetensors",
      {
          {"unknown dtype", with("dtype", "\"F33\""),
           "tensor 'a' at byte 27: dtype 'F33', expected BOOL, U8, I8, U16, "
           "I16, U32, I32, U64, I64, F8_E5M2, F8_E4M3, F8_E8M0, F16, BF16, F32 or F64; convert the "
           "file again"},
          {"lower case dtype", with("dtype", "\"f32\""),
           "tensor 'a' at byte 27: dtype 'f32', expected BOOL, U8, I8, U16, "
           "I16, U32, I32, U64, I64, F8_E5M2, F8_E4M3, F8_E8M0, F16, BF16, F32 or F64; convert the "
           "file again"},
          {"GGUF dtype", with("dtype", "\"Q4_0\""),
           "tensor 'a' at byte 28: dtype 'Q4_0', expected BOOL, U8, I8, U16, "
           "I16, U32, I32, U64, I64, F8_E5M2, F8_E4M3, F8_E8M0, F16, BF16, F32 or F64; convert the "
           "file again"},
          {"number dtype", with("dtype", "32"),
           "tensor 'a' at byte 25: dtype: expected a string, got 32; convert "
           "the file again"},
          {"list dtype", with("dtype", "[\"F32\"]"),
           "tensor 'a' at byte 23: dtype: expected a string, got a list; "
           "convert the file again"},
      });
}

}  // namespace
}  // namespace weft::io
