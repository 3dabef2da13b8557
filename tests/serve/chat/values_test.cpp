// The values of calls' arguments, in the forms that are not JSON.
#include <gtest/gtest.h>

#include <string>

#include "tests/serve/chat/answer_of.h"

namespace weft::serve {
namespace {

using test::answer_of;
using test::options_of;

TEST(CallValues, AQuoteThatIsNotClosedIsBroken) {
  const AnswerOptions gemma = options_of(ToolFormat::kGemma4);
  const AnswerOptions lfm2 = options_of(ToolFormat::kLfm2);
  for (const char* arguments :
       {"text:<|\"|>true}", "text:<|\"|>1}", "text:\"\\u12true\"}", "<|\"|>text:1}",
        "list:[<|\"|>a<|\"|>,<|\"|>null]}", "\"\\uD:1}", "te<|\"|>xt:1}"}) {
    const std::string call = std::string("<|tool_call>call:f{") + arguments + "<tool_call|>";
    EXPECT_EQ(answer_of(gemma, call), "|" + call + "|");
  }
  for (const char* arguments : {"text='\\u12True", "x={'\\u12 b': 1}", "x={'\\uDa: 1}", "text='"}) {
    const std::string call =
        std::string("<|tool_call_start|>[f(") + arguments + ")]<|tool_call_end|>";
    EXPECT_EQ(answer_of(lfm2, call), "|" + call + "|");
  }
}

TEST(CallValues, GemmaWritesAnyKeyWithoutQuotes) {
  const AnswerOptions gemma = options_of(ToolFormat::kGemma4);
  const auto call = [&](const std::string& arguments) {
    return answer_of(gemma, "<|tool_call>call:f{" + arguments + "}<tool_call|>");
  };
  EXPECT_EQ(call("$ref: 1,@type/x : true, my key:<|\"|>a<|\"|>,größe:2,don't:{a b:[]}"),
            "||f({\"$ref\": 1, \"@type/x\": true, \"my key\": \"a\", \"größe\": 2, \"don't\": "
            "{\"a b\": []}})");
  EXPECT_EQ(call("<|\"|>a:b<|\"|>:1,\"c\":2"), "||f({\"a:b\": 1, \"c\": 2})");
  for (const std::string broken : {"a{b:1", ":1", " :1", "a b", "a,b:1", "a:1,a:2"}) {
    EXPECT_EQ(call(broken), "|<|tool_call>call:f{" + broken + "}<tool_call|>|");
  }
}

TEST(CallValues, AnArgumentThatIsNamedTwiceIsBroken) {
  for (const auto& [format, call] :
       {std::pair(ToolFormat::kGlm,
                  "<tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value>"
                  "<arg_key>x</arg_key><arg_value>2</arg_value></tool_call>"),
        std::pair(ToolFormat::kLfm2, "<|tool_call_start|>[f(x=1, x=2)]<|tool_call_end|>")}) {
    EXPECT_EQ(answer_of(options_of(format), call), std::string("|") + call + "|");
  }
}

// A value in tags, of an argument of this name, under a schema.
std::string tagged(const std::string& schema, const std::string& key, const std::string& value) {
  AnswerOptions glm = options_of(ToolFormat::kGlm);
  glm.parameters[0] = schema;
  const std::string line = answer_of(glm, "<tool_call>f<arg_key>" + key + "</arg_key><arg_value>" +
                                              value + "</arg_value></tool_call>");
  const std::string begin = "||f({\"" + key + "\": ";
  EXPECT_TRUE(line.starts_with(begin) && line.ends_with("})")) << line;
  return line.substr(begin.size(), line.size() - begin.size() - 2);
}

TEST(CallValues, TypesAreFoundWhereverTheSchemaHasThem) {
  const std::string text = R"({"properties": {"x": {"type": "string"}}})";
  EXPECT_EQ(tagged(text, "x", "12"), "\"12\"");
  for (const char* several : {"anyOf", "oneOf", "allOf"}) {
    const std::string schema =
        std::string("{\"") + several + "\": [{\"type\": \"object\"}, " + text + "]}";
    EXPECT_EQ(tagged(schema, "x", "12"), "\"12\"");
    EXPECT_EQ(tagged(schema, "y", "12"), "12");
  }
  EXPECT_EQ(tagged(R"({"$ref": "#/$defs/a", "$defs": {"a": )" + text + "}}", "x", "12"), "\"12\"");
  const std::string others = R"({"properties": {"x": {"type": "integer"}},
      "additionalProperties": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "string"}}})";
  EXPECT_EQ(tagged(others, "x", "12"), "12");
  EXPECT_EQ(tagged(others, "y", "12"), "\"12\"");
  EXPECT_EQ(tagged(R"({"additionalProperties": true})", "y", "12"), "12");
  EXPECT_EQ(tagged(R"({"properties": [], "anyOf": {}, "$ref": 1})", "y", "12"), "12");
}

}  // namespace
}  // namespace weft::serve
