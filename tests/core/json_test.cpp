#include "weft/core/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/core/error_text.h"

namespace weft::core {
namespace {

using testing::error_text;

std::string parse_error(std::string_view text, const JsonLimits& limits = {}) {
  return error_text([&] { parse_json(text, "F", limits); });
}

TEST(Json, ParsesEachKindOfValue) {
  const Json value = parse_json(R"( {"a":[1,-2,2.5,true,null,"é\n\ud83d\ude00"],"b":{}} )", "F");
  EXPECT_EQ(to_uint64(value["a"][0], "F"), 1u);
  EXPECT_EQ(to_int64(value["a"][1], "F"), -2);
  EXPECT_EQ(to_double(value["a"][2], "F"), 2.5);
  EXPECT_TRUE(to_bool(value["a"][3], "F"));
  EXPECT_TRUE(value["a"][4].is_null());
  EXPECT_EQ(to_string(value["a"][5], "F"), "é\n😀");
  EXPECT_EQ(value["b"].size(), 0u);
}

TEST(Json, KeepsIntegersOf64BitsExact) {
  EXPECT_EQ(to_uint64(parse_json("18446744073709551615", "F"), "F"), UINT64_MAX);
  EXPECT_EQ(to_int64(parse_json("-9223372036854775808", "F"), "F"), INT64_MIN);
  EXPECT_EQ(to_int64(parse_json("9223372036854775807", "F"), "F"), INT64_MAX);
  EXPECT_EQ(to_int64(parse_json("9007199254740993", "F"), "F"), 9007199254740993);
}

// Published tokenizer_config.json files hold 10^30 as an integer.
TEST(Json, AnIntegerBeyond64BitsIsADoubleAndNoInteger) {
  const Json huge = parse_json("1000000000000000019884624838656", "F");
  EXPECT_EQ(to_double(huge, "F"), 1e30);
  EXPECT_EQ(error_text([&] { to_int64(huge, "F"); }),
            "FormatError: F: expected an integer, got 1e+30");
  EXPECT_EQ(error_text([&] { to_uint64(parse_json("18446744073709551616", "F"), "F"); }),
            "FormatError: F: expected a non-negative integer, got 1.8446744073709552e+19");
  EXPECT_EQ(error_text([&] { to_int64(parse_json("-9223372036854775809", "F"), "F"); }),
            "FormatError: F: expected an integer, got -9.223372036854776e+18");
}

TEST(Json, RefusesWhatTheGrammarDoesNotAllow) {
  for (const char* text : {"",
                           " ",
                           "{",
                           "[1,]",
                           "{\"a\":1,}",
                           "{a:1}",
                           "'a'",
                           "01",
                           "+1",
                           ".5",
                           "1.",
                           "NaN",
                           "Infinity",
                           "-",
                           "tru",
                           "\"\x01\"",
                           "\"\\x\"",
                           "\"a",
                           "/**/1",
                           "[1 2]",
                           "{\"a\" 1}",
                           "\"\\ud800\"",
                           "\"\\udc00\"",
                           "\"\xff\"",
                           "\"\xc0\x80\"",
                           "\"\xed\xa0\x80\"",
                           "\"\xf5\x80\x80\x80\""}) {
    EXPECT_NE(parse_error(text).find("FormatError: F: not valid JSON at byte "), std::string::npos)
        << text << " gave " << parse_error(text);
  }
}

TEST(Json, ErrorsGiveTheByte) {
  EXPECT_EQ(parse_error("[1, x]"),
            "FormatError: F: not valid JSON at byte 4: syntax error while parsing value - invalid "
            "literal; last read: '1, x'");
  EXPECT_EQ(parse_error("{}{}"),
            "FormatError: F: not valid JSON at byte 2: syntax error while parsing value - "
            "unexpected '{'; expected end of input");
  EXPECT_EQ(parse_error("[1e400]"),
            "FormatError: F: not valid JSON: number overflow parsing '1e400'");
}

TEST(Json, RefusesNulAndByteOrderMark) {
  EXPECT_EQ(parse_error(std::string_view("{}\0\0", 4)),
            "FormatError: F: not valid JSON at byte 2: a NUL byte");
  EXPECT_EQ(
      parse_error("\xEF\xBB\xBF{}"),
      "FormatError: F: not valid JSON at byte 0: a byte order mark; save the file without it");
}

TEST(Json, RefusesDuplicateKeysAtAnyDepth) {
  EXPECT_EQ(parse_error(R"({"a":1,"b":2,"a":3})"),
            "FormatError: F: duplicate JSON key 'a'; each key may stand once");
  EXPECT_EQ(parse_error(R"([{"x":{"k":1,"\u006b":2}}])"),
            "FormatError: F: duplicate JSON key 'k'; each key may stand once");
  EXPECT_EQ(parse_error(R"([{"k":1},{"k":2},{"k":{"k":3}}])"), "no error");
}

TEST(Json, RefusesDeepNestingWithoutUsingTheStack) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(parse_error(nested(64)), "no error");
  const std::string expected = "FormatError: F: JSON nested deeper than 64 levels; flatten it";
  EXPECT_EQ(parse_error(nested(65)), expected);
  EXPECT_EQ(parse_error(nested(100'000)), expected);
  EXPECT_EQ(parse_error(std::string(100'000, '[')), expected);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(parse_error(objects), expected);
}

TEST(Json, LimitsTheSize) {
  EXPECT_EQ(parse_error("[1]", {.max_bytes = 3}), "no error");
  EXPECT_EQ(parse_error("[1] ", {.max_bytes = 3}),
            "FormatError: F: JSON of 4 bytes, expected at most 3");
}

TEST(Json, MessagesStayShortAndOnOneLine) {
  const std::string text = parse_error("\"" + std::string(1'000'000, 'a') + "\n");
  EXPECT_LT(text.size(), 300u);
  EXPECT_EQ(text.find('\n'), std::string::npos);
}

TEST(Json, FindAndRequireNameTheKey) {
  const Json object = parse_json(R"({"a":1})", "F");
  EXPECT_EQ(*find(object, "a", "F"), 1);
  EXPECT_EQ(find(object, "b", "F"), nullptr);
  EXPECT_EQ(require(object, "a", "F"), 1);
  EXPECT_EQ(error_text([&] { require(object, "b", "F"); }), "FormatError: F: missing key \"b\"");
  EXPECT_EQ(error_text([&] { find(Json::array(), "b", "F"); }),
            "FormatError: F: expected an object, got array");
}

TEST(Json, ConversionsNeverRoundOrWrap) {
  const auto error = [](auto convert, const char* text) {
    return error_text([&] { convert(parse_json(text, "F"), "F"); });
  };
  EXPECT_EQ(error(to_int64, "1.0"), "FormatError: F: expected an integer, got 1.0");
  EXPECT_EQ(error(to_int64, "true"), "FormatError: F: expected an integer, got boolean");
  EXPECT_EQ(error(to_int64, "\"1\""), "FormatError: F: expected an integer, got string");
  EXPECT_EQ(error(to_int64, "9223372036854775808"),
            "FormatError: F: 9223372036854775808 is too large for a signed integer");
  EXPECT_EQ(error(to_uint64, "-1"), "FormatError: F: expected a non-negative integer, got -1");
  EXPECT_EQ(error(to_uint64, "1e0"), "FormatError: F: expected a non-negative integer, got 1.0");
  EXPECT_EQ(error(to_uint64, "null"), "FormatError: F: expected a non-negative integer, got null");
  EXPECT_EQ(error(to_double, "false"), "FormatError: F: expected a number, got boolean");
  EXPECT_EQ(error(to_bool, "1"), "FormatError: F: expected true or false, got 1");
  EXPECT_EQ(error(to_string, "[]"), "FormatError: F: expected a string, got array");
  EXPECT_EQ(error_text([] { to_double(Json(std::numeric_limits<double>::infinity()), "F"); }),
            "FormatError: F: expected a finite number, got inf");
  // A value built in code rather than parsed is signed.
  EXPECT_EQ(to_uint64(Json(int64_t{5}), "F"), 5u);
}

TEST(Json, DumpsOneLineAndReplacesInvalidUtf8) {
  EXPECT_EQ(dump_json(parse_json(R"({ "b" : [1, 2.5], "a" : "x\n" })", "F")),
            R"({"a":"x\n","b":[1,2.5]})");
  EXPECT_EQ(dump_json(Json("a\xff")), "\"a\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace weft::core
